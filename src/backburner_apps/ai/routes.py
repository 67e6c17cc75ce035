"""The AI service over HTTP: what it can do, and asking for it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from math import ceil
from typing import Annotated, Any, Final

import orjson
from pydantic import RootModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from backburner import (
    Backburner,
    Capability,
    GroupOptions,
    InvalidInput,
    Job,
    JobState,
    Problem,
    StoreUnavailable,
    web,
)
from backburner.web import Refusal, Route
from backburner_apps.ai.answers import answered
from backburner_apps.ai.callback import Return
from backburner_apps.ai.requests import flow_of, is_offered, key_of, offered

Writer = Annotated[web.Caller, web.require("jobs:write")]
Reader = Annotated[web.Caller, web.require("jobs:read")]

PATTERNS: Final = ("sync", "async")
FIRST: Final = 9
"""The priority of what somebody waits for."""
THROTTLED: Final = "job.throttled"
LATER: Final = 5
"""When to ask again, in seconds, if the model is not there and does not say."""
_LATE: Final = ("AI_TIMEOUT", "TIMEOUT", "EXPIRED")
_AWAY: Final = (
    "WORKER_LOST",
    "AI_NOT_CONFIGURED",
    "AI_RATE_LIMITED",
    "AI_UNAVAILABLE",
    "AI_UNAUTHORIZED",
    "AI_QUOTA_EXHAUSTED",
)
_STATUSES: Final = {**dict.fromkeys(_LATE, 504), **dict.fromkeys(_AWAY, 503)}
_UNUSABLE: Final = 502
"""What any other trouble with a model is."""
BESIDE: Final = frozenset({"callbackUrl", "userId", "tokenReservation"})
"""What of a body is not the capability's input."""


class Body(RootModel[dict[str, Any]]):
    """The capability's input and, for `async`, beside it whom to call back."""


_RETURN = TypeAdapter(Return)


@asynccontextmanager
async def serves(backburner: Backburner) -> AsyncIterator[Sequence[BaseRoute]]:
    """Give the service's routes."""
    service, path = Service(backburner), "/api/v1/capabilities"
    listing = "List what the AI service can do"
    ask = "Ask for a capability: at once, or by a callback"
    yield web.routes_of(
        "ai",
        [
            Route("GET", path, service.listing, listing, None, "list_ai_capabilities"),
            Route("POST", f"{path}/{{name}}", service.ask, ask, Body, "ask_ai"),
        ],
    )


class Service:
    """What the routes do."""

    def __init__(self, backburner: Backburner) -> None:
        self._backburner = backburner

    async def listing(self, _caller: Reader) -> Response:
        """List the capabilities, with the JSON schemas of inputs and results."""
        items = [
            {
                "name": found.name,
                "description": found.description,
                "queue": found.queue,
                "patterns": PATTERNS,
                "inputSchema": found.input.json_schema(),
                "outputSchema": found.output.json_schema(mode="serialization"),
            }
            for found in self._backburner.registry
            if is_offered(found)
        ]
        return web.answer({"items": items})

    async def ask(
        self, request: Request, name: str, caller: Writer, pattern: str = "sync"
    ) -> Response:
        """
        Do it and answer with the result, or commit it and call back.

        It is checked that the capability exists, that the input matches, and that the
        input is no prompt injection, in this order.
        """
        found = offered(self._backburner, name)
        if pattern not in PATTERNS:
            raise Refusal(400, "INVALID_INPUT", "pattern is sync or async")
        sent = (await web.read(request, Body)).root
        if "reply" in sent:
            raise Refusal(400, "INVALID_INPUT", "reply: no such field")
        value = {key: given for key, given in sent.items() if key not in BESIDE}
        web.checked(found.input, value)
        asked_by = web.origin(request, caller)
        if pattern == "sync":
            return await self._now(found, value, asked_by)
        reply = self._reply(sent)
        reply.request_id = web.request_id_of(request)
        # A repeat of a request is known by its own id.
        has_id = "x-request-id" in request.headers
        key = key_of(reply.request_id) if has_id else None
        options = GroupOptions(**asked_by, idempotency_key=key)
        return await self._later(
            flow_of(self._backburner, found, value, reply, options)
        )

    async def _now(
        self,
        found: Capability[Any, Any],
        value: dict[str, Any],
        asked_by: Mapping[str, Any],
    ) -> Response:
        """
        Run it as a job of one attempt, before what waits, and answer with its end.

        So it goes by the lanes of its models, is in the usage and within the budgets,
        as everything else is.
        """
        now = datetime.fromtimestamp(self._backburner.engine.now() / 1000, UTC)
        ticket = await self._backburner.submit(
            found.name,
            value,
            **asked_by,
            priority=FIRST,
            max_attempts=1,
            deadline=now + found.timeout,
        )
        async for event in ticket.events():
            if event.type == THROTTLED:
                # It would wait, and its caller with it.
                waiting = await ticket.job()
                await ticket.cancel()
                raise self._busy(waiting)
        ended = await ticket.job()
        if ended.state is not JobState.SUCCEEDED:
            raise _refusal(ended.error)
        told = answered(orjson.loads(ended.output or "null"))
        return web.answer({**told, "aiServiceRequestId": ticket.id})

    def _busy(self, waiting: Job) -> Refusal:
        error = waiting.error
        code = "AI_RATE_LIMITED" if error is None else error.code
        now = self._backburner.engine.now()
        wait = max(1, ceil(((waiting.run_at or now) - now) / 1000))
        message = "the model takes no call just now"
        return Refusal(503, code, message, retry_after=wait)

    async def _later(self, flow: Any) -> Response:
        try:
            [submitted] = await self._backburner.engine.flows.store([flow])
        except StoreUnavailable as error:
            message = "it cannot be stored just now"
            raise Refusal(503, error.code, message, retry_after=2) from None
        return web.answer({"aiServiceRequestId": submitted.id}, 202)

    def _reply(self, sent: dict[str, Any]) -> Return:
        reply = web.checked(_RETURN, {key: sent[key] for key in BESIDE & sent.keys()})
        try:
            url = self._backburner.callback_sender.check(
                reply.callback_url, "callbackUrl"
            )
        except InvalidInput as error:
            raise web.invalid(error) from None
        return reply.model_copy(update={"callback_url": url})


def _refusal(error: Problem | None) -> Refusal:
    """Say by a status what became of a model's answer."""
    if error is None:
        return Refusal(503, "CANCELLED", "it was cancelled", retry_after=LATER)
    status = _STATUSES.get(error.code, _UNUSABLE)
    wait = LATER if error.code in _AWAY else None
    return Refusal(status, error.code, error.message, retry_after=wait)
