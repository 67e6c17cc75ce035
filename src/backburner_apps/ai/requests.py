"""A request that is answered by a callback is one flow, over HTTP and by the queue."""

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
    UnknownCapability,
    message_options,
)
from backburner_apps.ai.answers import QUEUE
from backburner_apps.ai.callback import NAME, STEP, Asked, Return, callback
from backburner_apps.contract import TokenReservation

FORM: Final = frozenset({"params", "query", "body"})
"""What `input` has in a message of another program; `body` is the capability's."""


def is_offered(found: Capability[Any, Any]) -> bool:
    """Return whether the AI service offers a capability to its callers."""
    return found.queue == QUEUE and found.name != NAME


def offered(backburner: Backburner, name: str) -> Capability[Any, Any]:
    """Return a capability that the AI service offers; raise `UnknownCapability`."""
    found = backburner.registry.get(name)
    if found is None or not is_offered(found):
        raise UnknownCapability("the AI service has no capability of that name")
    return found


def flow_of(
    backburner: Backburner,
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
    new = backburner.engine.flows.prepare(flow, options)
    for step in new.steps:
        step.job.input = _with_id(step.job.input, new.id)
    return new


def read_message(backburner: Backburner, asked: Any) -> Any:
    """
    Write a message of another program as a flow, if it is in the service's form.

    That is `{capability, input: {params, query, body}, callbackUrl, requestId, userId,
    tokenReservation?}`. `None`: it is in another form.
    """
    value = orjson.loads(asked.input)
    if not isinstance(value, dict) or "body" not in value or not value.keys() <= FORM:
        return None
    found, body = offered(backburner, asked.capability), value["body"]
    if not isinstance(body, dict) or "reply" in body:
        raise InvalidInput("input.body: must be an object, without the field reply")
    reply = _reply(backburner, asked)
    key = key_of(asked.request_id)
    options = GroupOptions(**message_options(asked), idempotency_key=key)
    return flow_of(backburner, found, body, reply, options)


def key_of(request_id: str) -> str:
    """Return the idempotency key of a request: the same over HTTP and by the queue."""
    return f"ai {request_id}"


def _reply(backburner: Backburner, asked: Any) -> Return:
    for name, given in (
        ("callbackUrl", asked.callback),
        ("requestId", asked.request_id),
        ("userId", asked.user),
    ):
        if given is None:
            raise InvalidInput(f"{name}: is missing")
    if asked.tokens is not None and not asked.window.isdecimal():
        raise InvalidInput("tokenReservation.windowStartTimestamp: must be a number")
    return Return(
        callback_url=backburner.callback_sender.check(asked.callback, "callbackUrl"),
        user_id=asked.user,
        request_id=asked.request_id,
        token_reservation=None
        if asked.tokens is None
        else TokenReservation(
            tokens_reserved=asked.tokens, window_start_timestamp=int(asked.window)
        ),
    )


def _takes_reply(found: Capability[Any, Any], value: Mapping[str, Any]) -> bool:
    try:
        return isinstance(found.input.validate_python(value), Asked)
    except ValidationError:
        return False  # preparing the flow says what is wrong


def _with_id(text: str, flow_id: str) -> str:
    """Write into an input which request it is of; only its flow's id tells."""
    value = orjson.loads(text)
    reply = value.get("reply") if "callbackUrl" not in value else value
    if reply is not None:
        reply["aiServiceRequestId"] = flow_id
    return orjson.dumps(value).decode()
