"""The second job of a request: tells the caller what the first job came to."""

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
"""How long to wait for a capability that is being retried."""


class Return(CamelModel):
    """Whom to call back, and what they need to know the request by."""

    callback_url: Annotated[str, StringConstraints(strict=True, max_length=2048)]
    user_id: UserId
    natural_language: str = ""
    request_id: str | None = None
    """The id under which the request was made, as `x-request-id` has it."""
    token_reservation: TokenReservation | None = None
    ai_service_request_id: str = ""


class Asked(CamelModel, populate_by_name=False, extra="forbid"):
    """What any capability of the service may be asked with."""

    reply: SkipJsonSchema[Return | None] = None
    """Whom to call back; the service writes it, no caller does."""


class Told(CamelModel):
    """The caller has it."""

    status: Literal["success", "failure"]


@capability(NAME, queue=QUEUE, retry=RETRY, patience=PATIENCE, tokens=0)
async def callback(ctx: Context, value: Return) -> Told | Snooze:
    """Post what a capability came to, signed, to the caller."""
    given = ctx.needs.get(STEP)
    if given is None:
        raise PermanentError("it is told of nothing: it is no step after a capability")
    if not given.state.is_final:
        return Snooze(RETRIED, "the capability is retried: it comes to something else")
    body = message(ctx, value, await ctx.used_by(STEP))
    await ctx.deliver(value.callback_url, orjson.dumps(body), topic=TOPIC)
    return Told(status=body["status"])


def tell_again(ctx: Context, asked: Asked, said: str = "") -> None:
    """Have a retried capability call back again: the first end was told already."""
    if asked.reply is None or ctx.job.generation == 0:
        return
    again = asked.reply.model_copy(update={"natural_language": said})
    name = f"callback-{ctx.job.generation + 1}"
    ctx.flow.add(callback, again, after=[ctx.anyway], name=name)


def message(ctx: Context, value: Return, used: Spent) -> dict[str, Any]:
    """
    Write the body: a union on `status`.

    A failure tells, too, what the calls that were made for it `used`.
    Of what the capability returned only its result and its metadata are taken over, so
    no output can pass for a field of the envelope.
    """
    given = ctx.needs[STEP]
    hidden = {"callback_url"}
    envelope = value.model_dump(by_alias=True, exclude=hidden, exclude_none=True)
    if given.output is not None:
        return {"status": "success", **envelope, **answered(given.output)}
    problem = given.error or {}
    error = {"message": problem.get("message", "it was cancelled")}
    if "code" in problem:
        error["type"] = problem["code"]
    if used.calls:
        envelope["openaiMetadata"] = {STEP: summed(used).model_dump(by_alias=True)}
    return {"status": "failure", **envelope, "error": error}
