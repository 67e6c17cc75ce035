"""What goes over the Tasks service's wire."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
)
from pydantic.alias_generators import to_camel

LONGEST: Final = 10_000
"""The most characters that a sentence may have."""
SEEN: Final = r"[^\p{Cc}\p{Cf}\p{Z}]"
"""A character that is no control, format or space, so that there is one to read."""
PAGE: Final = 50
MOST: Final = 200


def _is_text(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise ValueError("must be a text, as ISO 8601 writes times")
    return value


Sentence = Annotated[
    str,
    StringConstraints(
        strict=True,
        strip_whitespace=True,
        min_length=1,
        max_length=LONGEST,
        pattern=SEEN,
    ),
]
Line = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)
]
Status = Literal["todo", "in_progress", "done"]
Priority = Literal["low", "medium", "high", "urgent"]


class Wire(BaseModel):
    """A value whose names are written `inThisWay` on the wire."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore"
    )


class Wish(BaseModel):
    """What somebody wants to do, in their words."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")

    natural_language: Sentence


class Change(BaseModel):
    """What of a task is to be another; what is not named stays."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")

    status: Status | None = None
    title: Line | None = None
    description: str | None = Field(None, max_length=LONGEST)
    due_date: Annotated[AwareDatetime | None, BeforeValidator(_is_text)] = None
    priority: Priority | None = None
    category: str | None = Field(None, max_length=100)


class Query(Wire):
    """Which tasks, and how many at once."""

    status: Status | None = None
    priority: Priority | None = None
    category: str | None = Field(None, max_length=100)
    limit: int = Field(PAGE, ge=1, le=MOST)
    cursor: str | None = Field(None, max_length=100)


class Subtask(Wire):
    """A step of a task."""

    title: Line


class Result(Wire):
    """A task as the AI service reads it out of a sentence."""

    title: Line
    description: str | None = None
    due_date: datetime | None = None
    priority: Priority = "medium"
    category: str | None = None
    recurrence: str | None = None
    subtasks: list[Subtask] = Field(default_factory=list, max_length=100)


class Step(Wire):
    """One call of a model."""

    model: str
    input_tokens: int = Field(ge=0, le=2**40)
    output_tokens: int = Field(ge=0, le=2**40)
    duration_ms: int = Field(ge=0)


class TokenReservation(Wire):
    """What was held for a request."""

    tokens_reserved: int = Field(ge=0)
    window_start_timestamp: int = Field(ge=0)


class _Ended(Wire):
    ai_service_request_id: Annotated[
        str, StringConstraints(min_length=1, max_length=100)
    ]
    user_id: (
        Annotated[int, Field(strict=True, ge=1, le=2**53)]
        | Annotated[str, StringConstraints(strict=True, min_length=1, max_length=500)]
    )
    natural_language: str
    request_id: Annotated[str, StringConstraints(max_length=100)] = ""
    """Under which id this service asked for it."""
    token_reservation: TokenReservation | None = None


class Success(_Ended):
    """The AI service has a task."""

    status: Literal["success"]
    result: Result
    openai_metadata: Mapping[str, Step]

    @property
    def tokens(self) -> int:
        """What was used of models in all."""
        calls = self.openai_metadata.values()
        return sum(call.input_tokens + call.output_tokens for call in calls)


class Fault(Wire):
    """Why there is none."""

    message: str
    type: str | None = None


class Failure(_Ended):
    """The AI service has none."""

    status: Literal["failure"]
    error: Fault
    openai_metadata: Mapping[str, Step] | None = None


CALLBACK: TypeAdapter[Success | Failure] = TypeAdapter(
    Annotated[Success | Failure, Field(discriminator="status")]
)


def plain(value: Any) -> Any:
    """Write a value as plain data, without what is not there."""
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)
