"""Errors."""

from typing import NotRequired, TypedDict

from backburner.shapes.jobs import JobError


class FieldProblem(TypedDict):
    """An invalid field and the reason."""

    path: str
    message: str


class BudgetProblem(TypedDict):
    """The exhausted budget; money is dollars as a decimal text."""

    scope: str
    unit: str
    limit: int | str
    left: int | str
    per_seconds: int


class Problem(TypedDict):
    """An error, by RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    """Stable code for programs."""
    retryable: bool
    request_id: str
    retry_after: NotRequired[int]
    """When to retry, in seconds."""
    errors: NotRequired[list[FieldProblem]]
    """Invalid fields."""
    error: NotRequired[JobError]
    """Why a job has no result."""
    budget: NotRequired[BudgetProblem]
    """The exhausted budget."""
    depth: NotRequired[int]
    """Number of waiting jobs of the share."""
    cap: NotRequired[int]
    """Maximum number of waiting jobs."""
