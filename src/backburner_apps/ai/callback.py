"""The second job of a request: sends the outcome of the first job to the caller."""

from datetime import timedelta
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import StringConstraints
from pydantic.json_schema import SkipJsonSchema

from backburner import CamelModel, Context, PermanentError, Snooze, Spent, capability
from backburner_apps.ai.answers import PATIENCE, QUEUE, RETRY, answered, summed
from backburner_apps.contract import TOPIC, TokenReservation, UserId

NAME: Final = "ai.callback"
STEP: Final = "capability"
RETRIED: Final = timedelta(seconds=2)
"""Delay before the next look at a capability that is being retried."""


class Return(CamelModel):
    """Where to send the callback, and the fields that identify the request in it."""

    callback_url: Annotated[str, StringConstraints(strict=True, max_length=2048)]
    user_id: UserId
    natural_language: str = ""
    request_id: str | None = None
    """The caller's id of the request, sent in `x-request-id`."""
    token_reservation: TokenReservation | None = None
    ai_service_request_id: str = ""


class Asked(CamelModel, populate_by_name=False, extra="forbid"):
    """Base class of the inputs of the service's capabilities."""

    reply: SkipJsonSchema[Return | None] = None
    """Where to send the callback; set by the service, never by a caller."""


class CallbackResult(CamelModel):
    """The result of an accepted callback."""

    status: Literal["success", "failure"]


@capability(NAME, queue=QUEUE, retry=RETRY, patience=PATIENCE, tokens=0)
async def callback(ctx: Context, value: Return) -> CallbackResult | Snooze:
    """Post the outcome of a capability, signed, to the caller."""
    given = ctx.needs.get(STEP)
    if given is None:
        raise PermanentError("ai.callback must be a step after a capability")
    if not given.state.is_final:
        return Snooze(RETRIED, "waits for the capability, which is being retried")
    body = message(ctx, value, await ctx.used_by(STEP))
    await ctx.deliver(value.callback_url, orjson.dumps(body), topic=TOPIC)
    return CallbackResult(status=body["status"])


def tell_again(ctx: Context, asked: Asked, sentence: str = "") -> None:
    """After a manual retry, add another callback: the first one was already sent."""
    if asked.reply is None or ctx.job.generation == 0:
        return
    again = asked.reply.model_copy(update={"natural_language": sentence})
    name = f"callback-{ctx.job.generation + 1}"
    ctx.flow.add(callback, again, after=[ctx.anyway], name=name)


def message(ctx: Context, value: Return, used: Spent) -> dict[str, Any]:
    """
    Return the body of the callback: a union on `status`.

    A failure includes what its model calls `used`. Of the capability's output, only
    result and metadata are copied, so that no output can replace a field of the body.
    """
    given = ctx.needs[STEP]
    hidden = {"callback_url"}
    envelope = value.model_dump(by_alias=True, exclude=hidden, exclude_none=True)
    if given.output is not None:
        return {"status": "success", **envelope, **answered(given.output)}
    problem = given.error or {}
    error = {"message": problem.get("message", "the job was cancelled")}
    if "code" in problem:
        error["type"] = problem["code"]
    if used.calls:
        envelope["openaiMetadata"] = {STEP: summed(used).model_dump(by_alias=True)}
    return {"status": "failure", **envelope, "error": error}
