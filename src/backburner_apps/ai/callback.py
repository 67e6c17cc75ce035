"""The second job of a request: tells whoever asked what the first came to."""

from datetime import timedelta
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema

from backburner import Context, PermanentError, Snooze, capability
from backburner_apps.ai.answers import PATIENCE, QUEUE, RETRY, Wire

TOPIC: Final = "ai-callback"
"""What callbacks are signed for: their receiver derives the same secret by it."""
NAME: Final = "ai.callback"
STEP: Final = "capability"
RETRIED: Final = timedelta(seconds=2)
"""How long to wait for a capability that is being retried."""

UserId = Annotated[
    str,
    StringConstraints(
        strict=True, max_length=400, pattern=r"^\P{C}*[^\p{C}\p{Z}]\P{C}*$"
    ),
]
"""Printable, with something to be seen in it."""


class TokenReservation(Wire):
    """What the caller holds for the request; it comes back as it was."""

    tokens_reserved: int = Field(ge=0, le=2**53, strict=True)
    window_start_timestamp: int = Field(ge=0, le=2**53, strict=True)


class Return(Wire):
    """Whom to tell, and what they need to know it by."""

    callback_url: str
    user_id: UserId
    natural_language: str = ""
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
    body = message(ctx, value)
    await ctx.deliver(value.callback_url, orjson.dumps(body), topic=TOPIC)
    return Told(status=body["status"])


def tell_again(ctx: Context, asked: Asked, said: str = "") -> None:
    """Have a retried capability's end told, either way: its first was told already."""
    if asked.reply is None or ctx.job.generation == 0:
        return
    again = asked.reply.model_copy(update={"natural_language": said})
    name = f"callback-{ctx.job.generation + 1}"
    told = again.model_dump(by_alias=True)
    ctx.flow.add(callback, told, after=[ctx.anyway], name=name)


def message(ctx: Context, value: Return) -> dict[str, Any]:
    """Write the body: a union on `status`."""
    given = ctx.needs[STEP]
    told: dict[str, Any] = {
        "aiServiceRequestId": value.ai_service_request_id,
        "userId": value.user_id,
        "naturalLanguage": value.natural_language,
    }
    if value.token_reservation is not None:
        told["tokenReservation"] = value.token_reservation.model_dump(by_alias=True)
    if given.output is not None:
        return {"status": "success", **told, **given.output}
    error = given.error or {}
    said = {"message": error.get("message", "it was cancelled")}
    if "code" in error:
        said["type"] = error["code"]
    return {"status": "failure", **told, "error": said}
