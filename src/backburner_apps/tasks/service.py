"""The Tasks service over HTTP."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import TypeAdapter
from pydantic.alias_generators import to_camel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from structlog.contextvars import bind_contextvars

from backburner import Backburner, Budget, ConfigurationError, estimate_of, web
from backburner.web import Refusal, Route, log
from backburner_apps.contract import TOPIC
from backburner_apps.tasks import book, operations
from backburner_apps.tasks.asking import LOST, AiService
from backburner_apps.tasks.settings import TasksSettings
from backburner_apps.tasks.shapes import (
    CALLBACK,
    Change,
    CreateTaskRequest,
    Failure,
    Query,
    Success,
)

Writer = Annotated[web.Caller, web.require("jobs:write")]
Reader = Annotated[web.Caller, web.require("jobs:read")]
Anybody = Annotated[web.Caller, web.require("public")]

CREATE: Final = "create"
LARGEST_CALLBACK: Final = 1024 * 1024
"""Maximum size of a callback, in bytes; a task is smaller."""
SHOWN: Final = (
    *("id", "title", "status", "priority", "description", "due_date", "category"),
    *("recurrence", "subtasks", "natural_language"),
)
"""The fields of a task that clients see if they are set."""
_QUERY: TypeAdapter[Query] = TypeAdapter(Query)
expected: Final = estimate_of(output=700)
"""Estimates the tokens to hold for a sentence: input, prompt and answer."""


@asynccontextmanager
async def serves(backburner: Backburner) -> AsyncIterator[Sequence[BaseRoute]]:
    """Declare the budget and keep the client open while the routes are served."""
    settings = backburner.settings_of(TasksSettings)
    base_url = settings.service_base_url or backburner.address
    try:
        # Without BACKBURNER_WEBHOOK_SECRET this raises, and the service does not start.
        secret = backburner.callback_sender.secret(TOPIC, base_url)
    except ValueError as error:
        raise ConfigurationError(f"TASKS_SERVICE_BASE_URL: {error}") from None
    if settings.tokens:
        window = timedelta(seconds=settings.window_seconds)
        budget = Budget("user", tokens=settings.tokens, per=window)
        await backburner.budgets.declare([budget])
    ai = AiService(backburner, base_url)
    try:
        yield _routes(Service(backburner, ai, secret))
    finally:
        await ai.close()


def _routes(service: "Service") -> Sequence[BaseRoute]:
    tasks, one = "/api/v1/tasks", "/api/v1/tasks/{task_id}"
    asked, webhooks = "/api/v1/requests/{request_id}", "/api/v1/webhooks"
    return web.routes_of(
        "tasks",
        [
            Route(
                "POST",
                tasks,
                service.create,
                "Create a task from a sentence",
                CreateTaskRequest,
            ),
            Route("GET", tasks, service.listing, "List tasks, newest first"),
            Route("GET", one, service.show, "Read a task"),
            Route("PATCH", one, service.change, "Change a task", Change),
            Route("DELETE", one, service.drop, "Delete a task"),
            Route("GET", asked, service.request, "Read the state of a request"),
            Route("POST", webhooks, service.webhook, "Receive a callback"),
        ],
    )


class Service:
    """Handles the requests of the routes."""

    def __init__(self, backburner: Backburner, ai: AiService, secret: str) -> None:
        """`secret` verifies the signatures of callbacks."""
        self._backburner = backburner
        self._ai = ai
        self._secret = secret

    async def create(self, request: Request, caller: Writer) -> Response:
        """Hold tokens, call the AI service and answer 202, before a task exists."""
        with operations.counted(CREATE, ends=False):
            task_request = await web.read(request, CreateTaskRequest)
            log.info("Create task (async) - starting")
            engine = self._backburner.engine
            asked = book.Asked(
                engine.draw("req"),
                caller.owner,
                task_request.natural_language,
                expected(task_request.natural_language),
                web.idempotency_key(request, task_request),
                web.traceparent_of(request),
            )
            settings, now = self._backburner.settings_of(TasksSettings), engine.now()
            held = await self._backburner.transact(book.hold, asked, settings, now)
            request_id = held.request_id
            # The AI service and its worker log this id, too.
            bind_contextvars(tasks_request_id=request_id)
            if held.reservation is not None:
                await self._ask(asked, request_id, held.reservation)
            log.info("Create task (async) - succeeded")
        headers = await web.budget_left(request, caller)
        headers["Location"] = f"/api/v1/requests/{request_id}"
        if held.is_repeat:
            headers["Idempotency-Replayed"] = "true"
        return web.answer({"tasksServiceRequestId": request_id}, 202, headers)

    async def listing(self, request: Request, caller: Reader) -> Response:
        """List the caller's own tasks."""
        with operations.counted("list"):
            query = web.checked(_QUERY, dict(request.query_params))
            shown, cursor = await self._backburner.read(book.page, caller.owner, query)
        items = [_task(row) for row in shown]
        return web.answer({"items": items, "nextCursor": cursor})

    async def show(self, task_id: str, caller: Reader) -> Response:
        """Return one of the caller's own tasks."""
        with operations.counted("show"):
            task = await self._backburner.read(book.show, task_id, caller.owner)
            return web.answer(_task(web.found(task, "task")))

    async def change(self, request: Request, task_id: str, caller: Writer) -> Response:
        """Change the given fields of a task."""
        with operations.counted("change"):
            wanted = await web.read(request, Change)
            if not wanted.model_fields_set:
                raise Refusal(400, "INVALID_INPUT", "name at least one field to change")
            now = self._backburner.engine.now()
            task = await self._backburner.transact(
                book.change, task_id, caller.owner, wanted, now
            )
            return web.answer(_task(web.found(task, "task")))

    async def drop(self, task_id: str, caller: Writer) -> Response:
        """Delete a task and its subtasks."""
        with operations.counted("delete"):
            was_there = await self._backburner.transact(
                book.drop, task_id, caller.owner
            )
            web.found(was_there or None, "task")
        return Response(status_code=204)

    async def request(self, request_id: str, caller: Reader) -> Response:
        """Return the state of a request: queued, running, created or failed."""
        with operations.counted("request"):
            state, mine = None, (request_id, caller.owner)
            row, task = await self._backburner.read(book.of_request, *mine)
            if row is not None and row.state == book.OPEN and row.ai_request_id:
                state = await self._ai.state(row.ai_request_id, caller.owner)
            if state == LOST:
                # Its callback may have arrived during the call of the AI service.
                row, task = await self._backburner.read(book.of_request, *mine)
            return web.answer(_became(web.found(row, "request"), task, state))

    async def webhook(self, request: Request, _caller: Anybody) -> Response:
        """Apply a callback of the AI service: store the task and settle its tokens."""
        log.info("Handle webhook callback - starting")
        try:
            callback = await web.read_webhook(
                request, CALLBACK, self._secret, limit=LARGEST_CALLBACK
            )
            ended = await self._end(callback)
        except Exception as error:
            code = getattr(error, "code", None)
            kind = type(error).__name__
            log.warning("Handle webhook callback - failed", code=code, error_type=kind)
            raise
        log.info("Handle webhook callback - succeeded", status=callback.status)
        body: dict[str, Any] = {"tasksServiceRequestId": ended.request}
        if isinstance(callback, Failure):
            return web.answer({**body, "acknowledged": True}, 201)
        return web.answer({**body, "task": _task(ended.task)}, 201)

    async def _end(self, callback: Success | Failure) -> book.Ended:
        engine = self._backburner.engine
        new, now = engine.draw("task"), engine.now()
        ended = await self._backburner.transact(book.end, callback, new, now)
        ended = web.found(ended, "request")
        bind_contextvars(tasks_request_id=ended.request)
        if ended.is_news:
            took = (now - ended.began_at) / 1000
            operations.count(CREATE, took, is_good=isinstance(callback, Success))
        if isinstance(callback, Failure):
            log.warning("task not made", code=callback.error.type)
        return ended

    async def _ask(
        self, asked: book.Asked, request_id: str, reservation: dict[str, int]
    ) -> None:
        """
        Pass a request on to the AI service.

        If it is unknown whether the AI service accepted it, a request with an
        idempotency key stays open, and its repeat calls the AI service again with the
        same id. One without a key is refused permanently, because its repeat is another
        request.
        """
        try:
            ai_request_id = await self._ai.parse(asked, request_id, reservation)
        except Refusal as refusal:
            if asked.repeat is None or not isinstance(refusal, web.Unsure):
                error = {"message": str(refusal), "type": refusal.code}
                now = self._backburner.engine.now()
                await self._backburner.transact(book.refused, request_id, error, now)
            raise
        await self._backburner.transact(book.accepted, request_id, ai_request_id)


def _became(
    row: Any, task: Mapping[str, Any] | None, state: str | None
) -> dict[str, Any]:
    """Return a request's body; `state` is its state in the AI service while open."""
    body = {"tasksServiceRequestId": row.id, "createdAt": web.time(row.created_at)}
    if row.state == book.CREATED:
        return {**body, "status": row.state, "task": _task(task)}
    if row.state in {book.FAILED, book.REFUSED}:
        return {**body, "status": book.FAILED, "error": row.error}
    if state == LOST:
        error = {"message": "the callback did not arrive", "type": "CALLBACK_FAILED"}
        return {**body, "status": book.FAILED, "error": error}
    return {**body, "status": state or "queued"}


def _task(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a task's body, or `None` if the task was deleted."""
    if row is None:
        return None
    return {
        **{to_camel(name): row[name] for name in SHOWN if row[name] is not None},
        "createdAt": web.time(row["created_at"]),
        "updatedAt": web.time(row["updated_at"]),
    }
