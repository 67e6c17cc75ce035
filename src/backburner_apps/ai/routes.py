"""The AI service over HTTP: what it can do, and asking for it."""

from collections.abc import Mapping, Sequence
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
    Flow,
    InvalidInput,
    StoreUnavailable,
    Throttled,
    UnknownCapability,
    WorkError,
)
from backburner.web import (
    Caller,
    GroupOptions,
    Refusal,
    answer,
    checked,
    documented,
    invalid,
    json_body,
    read,
    request_id_of,
    require,
)
from backburner_apps.ai.answers import QUEUE, Wire
from backburner_apps.ai.callback import (
    NAME,
    STEP,
    Asked,
    Return,
    TokenReservation,
    UserId,
    callback,
)

Writer = Annotated[Caller, require("jobs:write")]
Reader = Annotated[Caller, require("jobs:read")]

PATTERNS: Final = ("sync", "async")
LATER: Final = 5
"""When to ask again, in seconds, if the model is not there and does not say."""
_STATUSES: Final[Mapping[str, int]] = {
    "AI_TIMEOUT": 504,
    "AI_RATE_LIMITED": 503,
    "AI_UNAVAILABLE": 503,
    "AI_UNAUTHORIZED": 503,
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
            if _is_offered(found)
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
        asked = checked(found.input, value)
        if pattern == "sync":
            return await self._now(request, caller, found, value)
        return await self._later(request, caller, found, value, asked, sent)

    def _find(self, name: str) -> Capability[Any, Any]:
        found = self._house.registry.get(name)
        if found is None or not _is_offered(found):
            raise UnknownCapability("the AI service has no capability of that name")
        return found

    async def _now(
        self,
        request: Request,
        caller: Caller,
        found: Capability[Any, Any],
        value: dict[str, Any],
    ) -> Response:
        request_id = request_id_of(request)
        try:
            result = await self._house.run(
                found,
                value,
                owner=caller.owner,
                key=caller.key,
                request_id=request_id,
            )
        except TimeoutError:
            raise Refusal(504, "AI_TIMEOUT", "the model took too long") from None
        except WorkError as error:
            raise _refusal(error) from None
        told = found.output.dump_python(
            result, mode="json", by_alias=True, exclude_none=True
        )
        return answer({**told, "aiServiceRequestId": self._house.engine.draw("call")})

    async def _later(
        self,
        request: Request,
        caller: Caller,
        found: Capability[Any, Any],
        value: dict[str, Any],
        asked: Any,
        sent: dict[str, Any],
    ) -> Response:
        reply = self._reply(sent)
        said = value.get("naturalLanguage")
        held: dict[str, Any] = {} if reply.token_reservation is None else {"tokens": 0}
        if isinstance(asked, Asked):
            value = {**value, "reply": reply.model_dump(by_alias=True)}
        reply.natural_language = said if isinstance(said, str) else ""
        flow = Flow()
        # Whoever holds tokens for it elsewhere is not to be charged twice.
        work = flow.add(found.name, value, name=STEP, **held)
        told = reply.model_dump(by_alias=True)
        flow.add(callback, told, after=[work.anyway], name="callback")
        new = self._house.engine.flows.prepare(
            flow,
            GroupOptions(
                owner=caller.owner,
                key=caller.key,
                request_id=request_id_of(request),
                idempotency_key=_repeated(request),
            ),
        )
        for step in new.steps:
            step.job.input = _with_id(step.job.input, new.id)
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


def _is_offered(found: Capability[Any, Any]) -> bool:
    return found.queue == QUEUE and found.name != NAME


def _repeated(request: Request) -> str | None:
    """Return the key by which a repeat of a request is known: its own id."""
    told = request.headers.get("x-request-id")
    return None if told is None else f"ai {request_id_of(request)}"


def _with_id(text: str, flow_id: str) -> str:
    """Write into an input which request it is of; only its flow's id tells."""
    value = orjson.loads(text)
    told = value.get("reply") if "callbackUrl" not in value else value
    if told is not None:
        told["aiServiceRequestId"] = flow_id
    return orjson.dumps(value).decode()


def _refusal(error: WorkError) -> Refusal:
    """Say by a status what became of a model's answer."""
    status = _STATUSES.get(error.problem_code, _UNUSABLE)
    wait = None
    if status == 503:  # noqa: PLR2004 - as in the table above
        asked = error.retry_after if isinstance(error, Throttled) else None
        wait = max(1, round(asked)) if asked is not None else LATER
    return Refusal(status, error.problem_code, str(error), retry_after=wait)
