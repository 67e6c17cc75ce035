"""
The keyword arguments of `submit` and its relatives, for type checkers.

`Options` and `GroupOptions` in submission.py say what each of them means.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from backburner.domain.jobs.job import Owner


class StepOptions(TypedDict, total=False):
    """Options of a flow's step."""

    queue: str | None
    priority: int
    run_at: datetime | None
    delay: timedelta | None
    start_by: datetime | None
    deadline: datetime | None
    tags: Sequence[str]
    metadata: Mapping[str, str] | None
    max_attempts: int | None
    tokens: int | None
    share: str | None
    callback: Mapping[str, Any] | str | None
    completion: Mapping[str, Any] | None


class SubmitOptions(StepOptions, total=False):
    """Options of a job, and its owner."""

    parent: Mapping[str, str] | None
    """The job that waits for it: set by `ctx.run`."""

    idempotency_key: str | None
    owner: Owner
    request_id: str | None
    traceparent: str | None
    key: str | None


class SubmitGroupOptions(TypedDict, total=False):
    """Options of a flow or batch, and its owner."""

    deadline: datetime | None
    tags: Sequence[str]
    idempotency_key: str | None
    callback: Mapping[str, Any] | str | None
    owner: Owner
    request_id: str | None
    traceparent: str | None
    key: str | None
