"""Turns a request with a callback, sent over HTTP or by a broker, into a flow."""

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
"""The keys of `input` in another program's message; `body` is the capability's."""


def is_offered(capability: Capability[Any, Any]) -> bool:
    """Return whether the AI service offers a capability to its callers."""
    return capability.queue == QUEUE and capability.name != NAME


def offered(backburner: Backburner, name: str) -> Capability[Any, Any]:
    """Return a capability that the AI service offers; raise `UnknownCapability`."""
    capability = backburner.registry.get(name)
    if capability is None or not is_offered(capability):
        raise UnknownCapability("the AI service has no capability of that name")
    return capability


def flow_of(
    backburner: Backburner,
    capability: Capability[Any, Any],
    value: Mapping[str, Any],
    reply: Return,
    options: GroupOptions,
) -> Any:
    """Return a request as a flow of capability and callback, without storing it."""
    sentence = value.get("naturalLanguage")
    # A caller that holds tokens in its own budget must not be charged twice.
    held: dict[str, Any] = {} if reply.token_reservation is None else {"tokens": 0}
    if _takes_reply(capability, value):
        value = {**value, "reply": reply.model_dump(by_alias=True)}
    reply.natural_language = sentence if isinstance(sentence, str) else ""
    flow = Flow()
    work = flow.add(capability.name, value, name=STEP, **held)
    flow.add(callback, reply, after=[work.anyway], name="callback")
    new = backburner.engine.flows.prepare(flow, options)
    for step in new.steps:
        step.job.input = _with_id(step.job.input, new.id)
    return new


def read_message(backburner: Backburner, asked: Any) -> Any:
    """
    Return a message of another program as a flow, or `None` for another format.

    The service's format is `{capability, input: {params, query, body}, callbackUrl,
    requestId, userId, tokenReservation?}`.
    """
    value = orjson.loads(asked.input)
    if not isinstance(value, dict) or "body" not in value or not value.keys() <= FORM:
        return None
    capability, body = offered(backburner, asked.capability), value["body"]
    if not isinstance(body, dict) or "reply" in body:
        raise InvalidInput("input.body: must be an object, without the field reply")
    reply = _reply(backburner, asked)
    key = key_of(asked.request_id)
    options = GroupOptions(**message_options(asked), idempotency_key=key)
    return flow_of(backburner, capability, body, reply, options)


def key_of(request_id: str) -> str:
    """Return a request's idempotency key, the same over HTTP and by a broker."""
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


def _takes_reply(capability: Capability[Any, Any], value: Mapping[str, Any]) -> bool:
    try:
        return isinstance(capability.input.validate_python(value), Asked)
    except ValidationError:
        return False  # preparing the flow reports the error


def _with_id(text: str, flow_id: str) -> str:
    """Return a step's input with the id of its flow as `aiServiceRequestId`."""
    value = orjson.loads(text)
    reply = value.get("reply") if "callbackUrl" not in value else value
    if reply is not None:
        reply["aiServiceRequestId"] = flow_id
    return orjson.dumps(value).decode()
