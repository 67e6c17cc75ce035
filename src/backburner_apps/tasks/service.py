"""The Tasks service over HTTP."""

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from structlog.contextvars import bind_contextvars

from backburner import (
    Backburner,
    Budget,
    ConfigurationError,
    Owner,
    Transaction,
    estimate_of,
)
from backburner.client import WebhookError, check_webhook_headers, verify_webhook
from backburner.web import (
    Caller,
    Refusal,
    answer,
    checked,
    documented,
    json_body,
    key_of,
    log,
    parse,
    read,
    read_bytes,
    require,
    time,
    traceparent_of,
)
from backburner_apps.tasks import book, metrics
from backburner_apps.tasks.asking import LOST, AiService, Unsure
from backburner_apps.tasks.settings import TasksSettings
from backburner_apps.tasks.shapes import (
    CALLBACK,
    Change,
    Failure,
    Query,
    Success,
    Wish,
)

Writer = Annotated[Caller, require("jobs:write")]
Reader = Annotated[Caller, require("jobs:read")]
Anybody = Annotated[Caller, require("public")]

TOPIC: Final = "ai-callback"
"""What callbacks are signed for."""
LONGEST_KEY: Final = 255
LARGEST_CALLBACK: Final = 1024 * 1024
"""The most bytes that a callback may have; a whole task has less."""
_QUERY: TypeAdapter[Query] = TypeAdapter(Query)
expected: Final = estimate_of(output=700)
"""What a sentence is held for: its own tokens, the prompt's and the answer's."""


@asynccontextmanager
async def opened(house: Backburner) -> AsyncIterator[Sequence[BaseRoute]]:
    """Have budget and connections ready while the routes are served."""
    settings = house.settings_of(TasksSettings)
    here = settings.service_base_url or house.address
    try:
        # Without BACKBURNER_WEBHOOK_SECRET this raises, and the service does not start.
        secret = house.courier.secret(TOPIC, here)
    except ValueError as error:
        raise ConfigurationError(f"TASKS_SERVICE_BASE_URL: {error}") from None
    window = timedelta(seconds=settings.window_seconds)
    if settings.tokens:
        await house.budgets.declare(
            [Budget("user", tokens=settings.tokens, per=window)]
        )
    ai = AiService(house, here)
    try:
        yield _routes(Service(house, ai, secret))
    finally:
        await ai.close()


def _routes(service: "Service") -> Sequence[BaseRoute]:
    router = APIRouter(tags=["tasks"])
    add = router.add_api_route
    one, asked = "/tasks/{task_id}", "/requests/{request_id}"
    wish, change = TypeAdapter(Wish), TypeAdapter(Change)
    handler: Callable[..., Any]
    takes: TypeAdapter[Any] | None
    for method, path, handler, summary, takes in (
        ("POST", "/tasks", service.create, "Have a task made of a sentence", wish),
        ("GET", "/tasks", service.listing, "List tasks, newest first", None),
        ("GET", one, service.show, "Look at a task", None),
        ("PATCH", one, service.change, "Change a task", change),
        ("DELETE", one, service.drop, "Delete a task", None),
        ("GET", asked, service.request, "See what became of a 202", None),
        ("POST", "/webhooks", service.webhook, "Take a callback", None),
    ):
        add(
            f"/api/v1{path}",
            handler,
            methods=[method],
            summary=summary,
            operation_id=f"tasks_{handler.__name__}",
            responses=documented(),
            openapi_extra=None if takes is None else json_body(takes),
        )
    return router.routes


class _Asked(NamedTuple):
    """What a client wants a task made of."""

    request_id: str
    owner: Owner
    sentence: str
    repeat: book.Repeat | None
    trace: str | None


class _Held(NamedTuple):
    """The request that stands for it, and what is held for that."""

    request_id: str
    reservation: dict[str, int]
    is_repeat: bool = False
    """Whether it was asked for before, with the same idempotency key."""
    is_known: bool = False
    """Whether the AI service has it, or had."""


def _repeat(request: Request, wish: Wish) -> book.Repeat | None:
    key = key_of(request)
    if key is None:
        return None
    if not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise Refusal(
            400,
            "INVALID_INPUT",
            f"Idempotency-Key: must be 1 to {LONGEST_KEY} visible ASCII characters",
        )
    body = wish.model_dump_json().encode()
    return book.Repeat(key, hashlib.sha256(body).hexdigest())


class Service:
    """The routes' way to the house."""

    def __init__(self, house: Backburner, ai: AiService, secret: str) -> None:
        """Take, beside the rest, the `secret` by which callbacks are verified."""
        self._house = house
        self._ai = ai
        self._secret = secret

    async def create(self, request: Request, caller: Writer) -> Response:
        """Hold tokens, ask the AI service, answer 202; the task comes later."""
        with metrics.counted_if_refused(metrics.CREATE):
            wish = await read(request, Wish)
            log.info("Create task (async) - starting")
            asked = _Asked(
                self._house.engine.draw("req"),
                caller.owner,
                wish.natural_language,
                _repeat(request, wish),
                traceparent_of(request),
            )
            held = await self._hold(asked)
            request_id = held.request_id
            # By this name the AI service and its worker know it.
            bind_contextvars(tasks_request_id=request_id)
            if not held.is_known:
                await self._ask(asked, held)
            log.info("Create task (async) - succeeded")
        headers = await self._limits(caller)
        headers["Location"] = f"/api/v1/requests/{request_id}"
        if held.is_repeat:
            headers["Idempotency-Replayed"] = "true"
        return answer({"tasksServiceRequestId": request_id}, 202, headers)

    async def listing(self, request: Request, caller: Reader) -> Response:
        """List the caller's own tasks."""
        with metrics.counted("list"):
            query = checked(_QUERY, dict(request.query_params))
            shown, cursor = await self._house.read(
                lambda view: book.page(view, caller.owner, query)
            )
        items = [_task(row) for row in shown]
        return answer({"items": items, "nextCursor": cursor})

    async def show(self, task_id: str, caller: Reader) -> Response:
        """Return one of the caller's own tasks."""
        with metrics.counted("show"):
            found = await self._house.read(
                lambda view: book.show(view, task_id, caller.owner)
            )
            return answer(_task(_there(found)))

    async def change(self, request: Request, task_id: str, caller: Writer) -> Response:
        """Change the status of a task, or what else of it is named."""
        with metrics.counted("change"):
            wanted = await read(request, Change)
            _refuse_nothing(wanted)
            now = self._house.engine.now()
            found = await self._house.transact(
                lambda tx: book.change(tx, task_id, caller.owner, wanted, now)
            )
            return answer(_task(_there(found)))

    async def drop(self, task_id: str, caller: Writer) -> Response:
        """Delete a task and its steps."""
        with metrics.counted("delete"):
            was_there = await self._house.transact(
                lambda tx: book.drop(tx, task_id, caller.owner)
            )
            if not was_there:
                raise _missing("task")
        return Response(status_code=204)

    async def request(self, request_id: str, caller: Reader) -> Response:
        """Say what became of a request: queued, running, created or failed."""
        with metrics.counted("request"):
            row, task = await self._of_request(request_id, caller.owner)
            state = None
            if row.state == book.OPEN and row.ai_request_id:
                state = await self._ai.state(row.ai_request_id, caller.owner)
            if state == LOST:
                # It may have been called back while the AI service was asked.
                row, task = await self._of_request(request_id, caller.owner)
            return answer(_became(row, task, state))

    async def _of_request(
        self, request_id: str, owner: Owner
    ) -> tuple[Any, Mapping[str, Any] | None]:
        row, task = await self._house.read(
            lambda view: book.of_request(view, request_id, owner)
        )
        if row is None:
            raise _missing("request")
        return row, task

    async def webhook(self, request: Request, _caller: Anybody) -> Response:
        """Take what the AI service came to: the task and the tokens, or neither."""
        log.info("Handle webhook callback - starting")
        try:
            ended, told = await self._end(request)
        except Exception as error:
            code = getattr(error, "code", None)
            kind = type(error).__name__
            log.warning("Handle webhook callback - failed", code=code, error_type=kind)
            raise
        log.info("Handle webhook callback - succeeded", status=told.status)
        return _acknowledged(ended, told)

    async def _end(self, request: Request) -> tuple[book.Ended, Success | Failure]:
        told = await self._verified(request)
        engine = self._house.engine
        new, now = engine.draw("task"), engine.now()
        ended = await self._house.transact(lambda tx: book.end(tx, told, new, now))
        if ended is None:
            raise _missing("request")
        bind_contextvars(tasks_request_id=ended.request)
        if ended.is_news:
            took = (now - ended.began_at) / 1000
            is_good = isinstance(told, Success)
            metrics.count(metrics.CREATE, took, is_good=is_good)
        if isinstance(told, Failure):
            log.warning("task not made", code=told.error.type)
        return ended, told

    async def _hold(self, asked: "_Asked") -> "_Held":
        """Write the request down and hold what it is expected to cost, or neither."""
        engine = self._house.engine
        settings = self._house.settings_of(TasksSettings)
        now, tokens = engine.now(), expected(asked.sentence)
        until = now + int(settings.hold_seconds * 1000)
        keep = timedelta(days=settings.keep_days) // timedelta(milliseconds=1)
        window = settings.window_seconds * 1000

        def hold(tx: Transaction) -> _Held:
            book.forget(tx, now - keep)
            first, row = asked.request_id, None
            if asked.repeat is not None:
                first = book.first_of(tx, first, asked.owner, asked.repeat, now)
                row = book.request(tx, first, asked.owner)
            if row is None:
                book.add(tx, first, asked.owner, now)
            is_known = row is not None and (row.ai_request_id or row.state != book.OPEN)
            if is_known:
                return _Held(first, {}, is_repeat=True, is_known=True)
            # Held under its id: of a repeat that the AI service is asked for once more,
            # what was held the first time.
            reserved = tx.reserve(first, tokens, asked.owner, until=until)
            asked_at = now if row is None else row.created_at
            start = reserved.window_start
            reservation = {
                "tokensReserved": reserved.tokens_reserved,
                "windowStartTimestamp": asked_at - asked_at % window
                if start is None
                else start,
            }
            return _Held(first, reservation, is_repeat=row is not None)

        return await self._house.transact(hold)

    async def _ask(self, asked: "_Asked", held: "_Held") -> None:
        """
        Have the AI service take a request.

        If nobody knows whether it did, a request with an idempotency key stays open:
        its repeat asks once more, under the same id. One without is refused for good,
        for its repeat is another request.
        """
        request_id = held.request_id
        try:
            known_as = await self._ai.parse(
                request_id, asked.owner, asked.sentence, held.reservation, asked.trace
            )
        except Refusal as refusal:
            if asked.repeat is None or not isinstance(refusal, Unsure):
                error = {"message": str(refusal), "type": refusal.code}
                now = self._house.engine.now()
                await self._house.transact(
                    lambda tx: book.refused(tx, request_id, error, now)
                )
            raise
        await self._house.transact(lambda tx: book.accepted(tx, request_id, known_as))

    async def _limits(self, caller: Caller) -> dict[str, str]:
        """Say how much of the narrowest token budget is left."""
        found = await self._house.budgets.accounts(caller.owner, caller.key)
        states = [state for state in found if state.account.unit == "tokens"]
        if not states:
            return {}
        state = min(states, key=lambda state: state.balance.left(state.limit))
        window, per = state.account.window, state.account.per
        seconds = max(1, -(-(window + per - self._house.engine.now()) // 1000))
        return {
            "RateLimit-Policy": f'"budget";q={state.limit};w={per // 1000}',
            "RateLimit": f'"budget";r={state.balance.left(state.limit)};t={seconds}',
        }

    async def _verified(self, request: Request) -> Success | Failure:
        """Return a callback that is signed for this service."""
        now = self._house.engine.now() / 1000
        try:
            # Nobody's body is read who does not even claim to have signed it.
            check_webhook_headers(request.headers, now=now)
            body = await read_bytes(request, LARGEST_CALLBACK)
            verify_webhook(body, request.headers, self._secret, now=now)
        except WebhookError as error:
            if error.code != "WEBHOOK_BODY":
                raise Refusal(401, error.code, str(error)) from None
            raise Refusal(400, error.code, str(error)) from None
        return checked(CALLBACK, parse(body))


def _acknowledged(ended: book.Ended, told: Success | Failure) -> Response:
    body: dict[str, Any] = {"tasksServiceRequestId": ended.request}
    if isinstance(told, Failure):
        return answer({**body, "acknowledged": True}, 201)
    task = None if ended.task is None else _task(ended.task)
    return answer({**body, "task": task}, 201)


def _there(found: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if found is None:
        raise _missing("task")
    return found


def _became(
    row: Any, task: Mapping[str, Any] | None, state: str | None
) -> dict[str, Any]:
    """Say what became of a request; `state` is the AI service's of an open one."""
    told: dict[str, Any] = {
        "tasksServiceRequestId": row.id,
        "status": row.state,
        "createdAt": time(row.created_at),
    }
    if row.state == book.CREATED:
        return {**told, "task": None if task is None else _task(task)}
    if row.state in {book.FAILED, book.REFUSED}:
        return {**told, "status": book.FAILED, "error": row.error}
    if state == LOST:
        why = {"message": "its callback did not arrive", "type": "CALLBACK_FAILED"}
        return {**told, "status": book.FAILED, "error": why}
    return {**told, "status": state or "queued"}


def _missing(what: str) -> Refusal:
    message = f"there is no such {what}, or it is somebody else's"
    return Refusal(404, f"{what.upper()}_NOT_FOUND", message)


def _refuse_nothing(wanted: Change) -> None:
    for name in ("status", "title", "priority"):
        if name in wanted.model_fields_set and getattr(wanted, name) is None:
            raise Refusal(400, "INVALID_INPUT", f"{name} cannot be nothing")
    if not wanted.model_fields_set:
        raise Refusal(400, "INVALID_INPUT", "name what is to change")


def _task(row: Mapping[str, Any]) -> dict[str, Any]:
    """Write a task for its owner."""
    optional = {
        "description": row["description"],
        "dueDate": row["due_date"],
        "category": row["category"],
        "recurrence": row["recurrence"],
    }
    return {
        "id": row["id"],
        "title": row["title"],
        "status": row["status"],
        "priority": row["priority"],
        **{name: value for name, value in optional.items() if value is not None},
        "subtasks": row["subtasks"],
        "naturalLanguage": row["natural_language"],
        "createdAt": time(row["created_at"]),
        "updatedAt": time(row["updated_at"]),
    }
