"""The AI service's routes: list capabilities and run them."""

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
"""The priority of synchronous requests, whose callers wait."""
THROTTLED: Final = "job.throttled"
LATER: Final = 5
"""Seconds in `Retry-After` if the model is unavailable and gives no time itself."""
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
"""The status for all other errors of a model."""
BESIDE: Final = frozenset({"callbackUrl", "userId", "tokenReservation"})
"""The fields of a body that are not part of the capability's input."""


class Body(RootModel[dict[str, Any]]):
    """The capability's input and, for `async`, the fields for the callback."""


_RETURN = TypeAdapter(Return)


@asynccontextmanager
async def serves(backburner: Backburner) -> AsyncIterator[Sequence[BaseRoute]]:
    """Yield the service's routes."""
    service, path = Service(backburner), "/api/v1/capabilities"
    listing = "List the capabilities of the AI service"
    ask = "Run a capability, and answer directly or by a callback"
    yield web.routes_of(
        "ai",
        [
            Route("GET", path, service.listing, listing, None, "list_ai_capabilities"),
            Route("POST", f"{path}/{{name}}", service.ask, ask, Body, "ask_ai"),
        ],
    )


class Service:
    """Handles the requests of the routes."""

    def __init__(self, backburner: Backburner) -> None:
        self._backburner = backburner

    async def listing(self, _caller: Reader) -> Response:
        """List the capabilities, with the JSON schemas of inputs and results."""
        items = [
            {
                "name": capability.name,
                "description": capability.description,
                "queue": capability.queue,
                "patterns": PATTERNS,
                "inputSchema": capability.input.json_schema(),
                "outputSchema": capability.output.json_schema(mode="serialization"),
            }
            for capability in self._backburner.registry
            if is_offered(capability)
        ]
        return web.answer({"items": items})

    async def ask(
        self, request: Request, name: str, caller: Writer, pattern: str = "sync"
    ) -> Response:
        """
        Run a capability and answer with its result, or store it and call back later.

        Checks, in this order, that the capability exists, that the input is valid, and
        that it is not a prompt injection.
        """
        capability = offered(self._backburner, name)
        if pattern not in PATTERNS:
            raise Refusal(400, "INVALID_INPUT", "pattern must be sync or async")
        sent = (await web.read(request, Body)).root
        if "reply" in sent:
            raise Refusal(400, "INVALID_INPUT", "reply: no such field")
        value = {key: given for key, given in sent.items() if key not in BESIDE}
        web.checked(capability.input, value)
        asked_by = web.origin(request, caller)
        if pattern == "sync":
            return await self._now(capability, value, asked_by)
        reply = self._reply(sent)
        reply.request_id = web.request_id_of(request)
        # A repeat is recognised only if the caller sends the same request id.
        has_id = "x-request-id" in request.headers
        key = key_of(reply.request_id) if has_id else None
        options = GroupOptions(**asked_by, idempotency_key=key)
        return await self._later(
            flow_of(self._backburner, capability, value, reply, options)
        )

    async def _now(
        self,
        capability: Capability[Any, Any],
        value: dict[str, Any],
        asked_by: Mapping[str, Any],
    ) -> Response:
        """
        Run a capability as a job with one attempt and top priority; await its result.

        Like any job, it passes the lanes of its models and counts towards usage and
        budgets.
        """
        now = datetime.fromtimestamp(self._backburner.engine.now() / 1000, UTC)
        ticket = await self._backburner.submit(
            capability.name,
            value,
            **asked_by,
            priority=FIRST,
            max_attempts=1,
            deadline=now + capability.timeout,
        )
        async for event in ticket.events():
            if event.type == THROTTLED:
                # The job would have to wait, and so would its caller.
                waiting = await ticket.job()
                await ticket.cancel()
                raise self._busy(waiting)
        ended = await ticket.job()
        if ended.state is not JobState.SUCCEEDED:
            raise _refusal(ended.error)
        body = answered(orjson.loads(ended.output or "null"))
        return web.answer({**body, "aiServiceRequestId": ticket.id})

    def _busy(self, waiting: Job) -> Refusal:
        error = waiting.error
        code = "AI_RATE_LIMITED" if error is None else error.code
        now = self._backburner.engine.now()
        wait = max(1, ceil(((waiting.run_at or now) - now) / 1000))
        message = "the model accepts no call at the moment"
        return Refusal(503, code, message, retry_after=wait)

    async def _later(self, flow: Any) -> Response:
        try:
            [submitted] = await self._backburner.engine.flows.store([flow])
        except StoreUnavailable as error:
            message = "the request cannot be stored at the moment"
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
    """Return the response for the error of a job."""
    if error is None:
        return Refusal(503, "CANCELLED", "the job was cancelled", retry_after=LATER)
    status = _STATUSES.get(error.code, _UNUSABLE)
    wait = LATER if error.code in _AWAY else None
    return Refusal(status, error.code, error.message, retry_after=wait)
