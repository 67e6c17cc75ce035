"""The second job of a request: tells whoever asked what the first came to."""

from datetime import timedelta
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema

from backburner import Context, PermanentError, Snooze, Spent, capability
from backburner_apps.ai.answers import (
    PATIENCE,
    QUEUE,
    RETRY,
    Wire,
    answered,
    spent,
)

TOPIC: Final = "ai-callback"
"""What callbacks are signed for: their receiver derives the same secret by it."""
NAME: Final = "ai.callback"
STEP: Final = "capability"
RETRIED: Final = timedelta(seconds=2)
"""How long to wait for a capability that is being retried."""

UserId = (
    Annotated[int, Field(strict=True, ge=1, le=2**53)]
    | Annotated[
        str,
        StringConstraints(
            strict=True, max_length=400, pattern=r"^\P{C}*[^\p{C}\p{Z}]\P{C}*$"
        ),
    ]
)
"""A positive integer, or printable text; it comes back with the type it was sent in."""


class TokenReservation(Wire):
    """What the caller holds for the request; it comes back as it was."""

    tokens_reserved: int = Field(ge=0, le=2**53, strict=True)
    window_start_timestamp: int = Field(ge=0, le=2**53, strict=True)


class Return(Wire):
    """Whom to tell, and what they need to know it by."""

    callback_url: str
    user_id: UserId
    natural_language: str = ""
    request_id: str = ""
    """The id under which the request was made, as `x-request-id` has it."""
    token_reservation: TokenReservation | None = None
    ai_service_request_id: str = ""


class Asked(Wire):
    """What any capability of the service may be asked with."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=False, extra="forbid"
    )

    reply: SkipJsonSchema[Return | None] = None
    """Whom to tell; the service writes it, no caller does."""


class Told(Wire):
    """The caller has it."""

    status: Literal["success", "failure"]


@capability(NAME, queue=QUEUE, retry=RETRY, patience=PATIENCE, tokens=0)
async def callback(ctx: Context, value: Return) -> Told | Snooze:
    """Post what a capability came to to whoever asked for it, signed."""
    given = ctx.needs.get(STEP)
    if given is None:
        raise PermanentError("it is told of nothing: it is no step after a capability")
    if not given.state.is_final:
        return Snooze(RETRIED, "the capability is retried: it comes to something else")
    body = message(ctx, value, await ctx.used_by(STEP))
    await ctx.deliver(value.callback_url, orjson.dumps(body), topic=TOPIC)
    return Told(status=body["status"])


def tell_again(ctx: Context, asked: Asked, said: str = "") -> None:
    """Have a retried capability's end told, either way: its first was told already."""
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
    envelope: dict[str, Any] = {
        "aiServiceRequestId": value.ai_service_request_id,
        "userId": value.user_id,
        "naturalLanguage": value.natural_language,
    }
    if value.request_id:
        envelope["requestId"] = value.request_id
    if value.token_reservation is not None:
        reservation = value.token_reservation.model_dump(by_alias=True)
        envelope["tokenReservation"] = reservation
    if given.output is not None:
        return {"status": "success", **envelope, **answered(given.output)}
    error = given.error or {}
    said = {"message": error.get("message", "it was cancelled")}
    if "code" in error:
        said["type"] = error["code"]
    metadata = {"openaiMetadata": spent(STEP, used)} if used.calls else {}
    return {"status": "failure", **envelope, "error": said, **metadata}
