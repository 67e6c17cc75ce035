"""The AI service over HTTP: what it can do, and asking for it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter
from pydantic import RootModel, StringConstraints, TypeAdapter
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
    UnknownCapability,
)
from backburner.web import (
    Caller,
    Refusal,
    answer,
    checked,
    documented,
    invalid,
    json_body,
    read,
    request_id_of,
    require,
    traceparent_of,
)
from backburner_apps.ai.answers import Wire, answered
from backburner_apps.ai.callback import Return, TokenReservation, UserId
from backburner_apps.ai.requests import flow_of, is_offered, key_of

Writer = Annotated[Caller, require("jobs:write")]
Reader = Annotated[Caller, require("jobs:read")]

PATTERNS: Final = ("sync", "async")
FIRST: Final = 9
"""The priority of what somebody waits for."""
THROTTLED: Final = "job.throttled"
LATER: Final = 5
"""When to ask again, in seconds, if the model is not there and does not say."""
_STATUSES: Final[Mapping[str, int]] = {
    "AI_TIMEOUT": 504,
    "TIMEOUT": 504,
    "EXPIRED": 504,
    "WORKER_LOST": 503,
    "AI_NOT_CONFIGURED": 503,
    "AI_RATE_LIMITED": 503,
    "AI_UNAVAILABLE": 503,
    "AI_UNAUTHORIZED": 503,
    "AI_QUOTA_EXHAUSTED": 503,
}
_UNUSABLE: Final = 502
"""What any other trouble with a model is."""
BESIDE: Final = frozenset({"callbackUrl", "userId", "tokenReservation"})
"""What of a body is not the capability's input."""


class Body(RootModel[dict[str, Any]]):
    """The capability's input and, for `async`, beside it whom to call back."""


class Later(Wire):
    """What is said beside the input where the answer comes later."""

    callback_url: Annotated[str, StringConstraints(strict=True, max_length=2048)]
    user_id: UserId
    token_reservation: TokenReservation | None = None


_LATER = TypeAdapter(Later)


def routes(house: Backburner) -> Sequence[BaseRoute]:
    """Return the service's routes over a house."""
    service = Service(house)
    router = APIRouter(tags=["ai"])
    router.add_api_route(
        "/api/v1/capabilities",
        service.listing,
        operation_id="list_ai_capabilities",
        summary="List what the AI service can do",
        responses=documented(),
    )
    router.add_api_route(
        "/api/v1/capabilities/{name}",
        service.ask,
        methods=["POST"],
        operation_id="ask_ai",
        summary="Ask for a capability: at once, or by a callback",
        responses=documented(),
        openapi_extra=json_body(TypeAdapter(Body)),
    )
    return router.routes


class Service:
    """The routes' way to the house."""

    def __init__(self, house: Backburner) -> None:
        self._house = house

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
            for found in self._house.registry
            if is_offered(found)
        ]
        return answer({"items": items})

    async def ask(
        self, request: Request, name: str, caller: Writer, pattern: str = "sync"
    ) -> Response:
        """
        Do it and answer with the result, or commit it and call back.

        It is checked that the capability exists, that the input matches, and that the
        input is no prompt injection, in this order.
        """
        found = self._find(name)
        if pattern not in PATTERNS:
            raise Refusal(400, "INVALID_INPUT", "pattern is sync or async")
        sent = (await read(request, Body)).root
        if "reply" in sent:
            raise Refusal(400, "INVALID_INPUT", "reply: no such field")
        value = {key: told for key, told in sent.items() if key not in BESIDE}
        checked(found.input, value)
        if pattern == "sync":
            return await self._now(request, caller, found, value)
        return await self._later(request, caller, found, value, sent)

    def _find(self, name: str) -> Capability[Any, Any]:
        found = self._house.registry.get(name)
        if found is None or not is_offered(found):
            raise UnknownCapability("the AI service has no capability of that name")
        return found

    async def _now(
        self,
        request: Request,
        caller: Caller,
        found: Capability[Any, Any],
        value: dict[str, Any],
    ) -> Response:
        """
        Run it as a job of one attempt, before what waits, and answer with its end.

        So it goes by the lanes of its models, is in the usage and within the budgets,
        as everything else is.
        """
        now = datetime.fromtimestamp(self._house.engine.now() / 1000, UTC)
        ticket = await self._house.submit(
            found.name,
            value,
            owner=caller.owner,
            key=caller.key,
            request_id=request_id_of(request),
            traceparent=traceparent_of(request),
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
        return answer({**told, "aiServiceRequestId": ticket.id})

    def _busy(self, waiting: Job) -> Refusal:
        error = waiting.error
        code = "AI_RATE_LIMITED" if error is None else error.code
        now = self._house.engine.now()
        wait = max(1, ceil(((waiting.run_at or now) - now) / 1000))
        message = "the model takes no call just now"
        return Refusal(503, code, message, retry_after=wait)

    async def _later(
        self,
        request: Request,
        caller: Caller,
        found: Capability[Any, Any],
        value: dict[str, Any],
        sent: dict[str, Any],
    ) -> Response:
        reply = self._reply(sent)
        reply.request_id = request_id_of(request)
        options = GroupOptions(
            owner=caller.owner,
            key=caller.key,
            request_id=request_id_of(request),
            traceparent=traceparent_of(request),
            idempotency_key=_repeated(request),
        )
        new = flow_of(self._house, found, value, reply, options)
        try:
            submitted = (await self._house.engine.flows.store([new]))[0]
        except StoreUnavailable as error:
            raise Refusal(
                503, error.code, "it cannot be stored just now", retry_after=2
            ) from None
        return answer({"aiServiceRequestId": submitted.id}, 202)

    def _reply(self, sent: dict[str, Any]) -> Return:
        told = checked(_LATER, {key: sent[key] for key in BESIDE & sent.keys()})
        try:
            url = self._house.courier.check(told.callback_url, "callbackUrl")
        except InvalidInput as error:
            raise invalid(error) from None
        return Return(
            callback_url=url,
            user_id=told.user_id,
            token_reservation=told.token_reservation,
        )


def _repeated(request: Request) -> str | None:
    """Return the key by which a repeat of a request is known: its own id."""
    told = request.headers.get("x-request-id")
    return None if told is None else key_of(request_id_of(request))


def _refusal(error: Problem | None) -> Refusal:
    """Say by a status what became of a model's answer."""
    if error is None:
        return Refusal(503, "CANCELLED", "it was cancelled", retry_after=LATER)
    status = _STATUSES.get(error.code, _UNUSABLE)
    wait = LATER if status == 503 else None  # noqa: PLR2004 - as in the table above
    return Refusal(status, error.code, error.message, retry_after=wait)
