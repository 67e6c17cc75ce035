"""A request that is answered by a callback: one flow, whoever asks for it."""

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson
from pydantic import ValidationError

from backburner import (
    Backburner,
    Capability,
    Flow,
    GroupOptions,
    InvalidInput,
    Owner,
    UnknownCapability,
)
from backburner_apps.ai.answers import QUEUE
from backburner_apps.ai.callback import (
    NAME,
    STEP,
    Asked,
    Return,
    TokenReservation,
    callback,
)

FORM: Final = frozenset({"params", "query", "body"})
"""What `input` has in a message of another program; `body` is the capability's."""
TENANT: Final = "default"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_USER: Final = re.compile(r"[!-~]{1,200}")


def is_offered(found: Capability[Any, Any]) -> bool:
    """Say whether the AI service offers a capability to its callers."""
    return found.queue == QUEUE and found.name != NAME


def flow_of(
    house: Backburner,
    found: Capability[Any, Any],
    value: Mapping[str, Any],
    reply: Return,
    options: GroupOptions,
) -> Any:
    """Write a request as a flow of two steps, capability and callback; not stored."""
    said = value.get("naturalLanguage")
    held: dict[str, Any] = {} if reply.token_reservation is None else {"tokens": 0}
    if _takes_reply(found, value):
        value = {**value, "reply": reply.model_dump(by_alias=True)}
    reply.natural_language = said if isinstance(said, str) else ""
    flow = Flow()
    # Whoever holds tokens for it elsewhere is not to be charged twice.
    work = flow.add(found.name, value, name=STEP, **held)
    flow.add(callback, reply, after=[work.anyway], name="callback")
    new = house.engine.flows.prepare(flow, options)
    for step in new.steps:
        step.job.input = _with_id(step.job.input, new.id)
    return new


def read_message(house: Backburner, asked: Any) -> Any:
    """
    Write a message of another program as a flow, if it is in the service's form.

    That is `{capability, input: {params, query, body}, callbackUrl, requestId, userId,
    tokenReservation?}`. `None`: it is in another form.
    """
    value = orjson.loads(asked.input)
    if not isinstance(value, dict) or "body" not in value or not value.keys() <= FORM:
        return None
    found = house.registry.get(asked.capability)
    if found is None or not is_offered(found):
        raise UnknownCapability("the AI service has no capability of that name")
    body = value["body"]
    if not isinstance(body, dict) or "reply" in body:
        raise InvalidInput("input.body: must be an object, without the field reply")
    reply = _reply(house, asked)
    is_id = _REQUEST_ID.fullmatch(asked.request_id)
    options = GroupOptions(
        owner=Owner(TENANT, str(asked.user)),
        request_id=asked.request_id if is_id else None,
        idempotency_key=key_of(asked.request_id),
    )
    return flow_of(house, found, body, reply, options)


def key_of(request_id: str) -> str:
    """Return the idempotency key of a request: the same over HTTP and by the queue."""
    return f"ai {request_id}"


def _reply(house: Backburner, asked: Any) -> Return:
    for name, given in (
        ("callbackUrl", asked.callback),
        ("requestId", asked.request_id),
        ("userId", asked.user),
    ):
        if given is None:
            raise InvalidInput(f"{name}: is missing")
    if not _USER.fullmatch(str(asked.user)):
        raise InvalidInput("userId: must be 1 to 200 visible characters")
    return Return(
        callback_url=house.courier.check(asked.callback, "callbackUrl"),
        user_id=asked.user,
        request_id=asked.request_id,
        token_reservation=_reservation(asked),
    )


def _reservation(asked: Any) -> TokenReservation | None:
    if asked.tokens is None:
        return None
    if not asked.window.isdecimal():
        raise InvalidInput("tokenReservation.windowStartTimestamp: must be a number")
    return TokenReservation(
        tokens_reserved=asked.tokens, window_start_timestamp=int(asked.window)
    )


def _takes_reply(found: Capability[Any, Any], value: Mapping[str, Any]) -> bool:
    try:
        return isinstance(found.input.validate_python(value), Asked)
    except ValidationError:
        return False  # preparing the flow says what is wrong


def _with_id(text: str, flow_id: str) -> str:
    """Write into an input which request it is of; only its flow's id tells."""
    value = orjson.loads(text)
    told = value.get("reply") if "callbackUrl" not in value else value
    if told is not None:
        told["aiServiceRequestId"] = flow_id
    return orjson.dumps(value).decode()
