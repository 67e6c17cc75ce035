"""Bodies and queries of the Tasks service's routes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BeforeValidator,
    Field,
    StringConstraints,
    TypeAdapter,
)

from backburner import CamelModel
from backburner.web import CursorQuery
from backburner_apps.contract import (
    LONGEST,
    Line,
    Priority,
    Sentence,
    Step,
    Subtask,
    TokenReservation,
    UserId,
)

Status = Literal["todo", "in_progress", "done"]
Id = Annotated[str, StringConstraints(max_length=100)]
ABSENT: Any = Field(default_factory=lambda: None)
"""The default of a field that may be left out, but cannot be null."""


def _is_text(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise ValueError("must be a text with a time in ISO 8601")
    return value


class CreateTaskRequest(CamelModel, populate_by_name=False, extra="forbid"):
    """A sentence from which a task is created."""

    natural_language: Sentence


class Change(CamelModel, populate_by_name=False, extra="forbid"):
    """The fields of a task to change; omitted ones stay, and some cannot be null."""

    status: Status = ABSENT
    title: Line = ABSENT
    priority: Priority = ABSENT
    description: str | None = Field(None, max_length=LONGEST)
    due_date: Annotated[AwareDatetime | None, BeforeValidator(_is_text)] = None
    category: str | None = Field(None, max_length=100)


class Query(CursorQuery):
    """Filters and page of a list of tasks."""

    status: Status | None = None
    priority: Priority | None = None
    category: str | None = Field(None, max_length=100)


class Result(CamelModel):
    """A task as the AI service extracts it from a sentence."""

    title: Line
    description: str | None = None
    due_date: datetime | None = None
    priority: Priority = "medium"
    category: str | None = None
    recurrence: str | None = None
    subtasks: list[Subtask] = Field(default_factory=list, max_length=100)


class _Ended(CamelModel):
    ai_service_request_id: Annotated[Id, StringConstraints(min_length=1)]
    user_id: UserId
    natural_language: str
    request_id: Id = ""
    """The Tasks service's id of the request."""
    token_reservation: TokenReservation | None = None


class Success(_Ended):
    """Reports that the AI service has extracted a task."""

    status: Literal["success"]
    result: Result
    openai_metadata: Mapping[str, Step]

    @property
    def tokens(self) -> int:
        """The total number of tokens of all model calls."""
        calls = self.openai_metadata.values()
        return sum(call.input_tokens + call.output_tokens for call in calls)


class Fault(CamelModel):
    """The reason for a failure."""

    message: str
    type: str | None = None


class Failure(_Ended):
    """Reports that the AI service could not extract a task."""

    status: Literal["failure"]
    error: Fault
    openai_metadata: Mapping[str, Step] | None = None


CALLBACK: TypeAdapter[Success | Failure] = TypeAdapter(
    Annotated[Success | Failure, Field(discriminator="status")]
)
