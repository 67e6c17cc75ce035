"""What callers may say in a request, under typed names."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypedDict

from backburner.domain.groups.batch import BatchState
from backburner.domain.jobs.job import FINAL

_ENDS: Final = frozenset({*FINAL, BatchState.FINISHED})


class WebhookEvent(TypedDict):
    """What a webhook tells."""

    type: str
    timestamp: str
    data: dict[str, Any]


class BudgetOptions(TypedDict, total=False):
    """What a budget says: `tokens` or `money`, and for which window and value."""

    overrun: str
    """`extend` or `stop`: see docs/budgets.md."""
    of: str | None
    tokens: int | None
    money: str | None
    per_seconds: int


class ScheduleOptions(TypedDict, total=False):
    """How a schedule is to be saved."""

    input: Any
    timezone: str
    missed: str


class JobChange(TypedDict, total=False):
    """What to change of a job that has not started; what is left out stays."""

    priority: int
    run_at: datetime | str | None
    """Another start time; `None`: as soon as it can."""


SAME_INPUT: Final = object()
"""Stands for the input of the job that is forked."""


class SubmitOptions(TypedDict, total=False):
    """How a job is to be run; what is `None` or left out is the server's choice."""

    queue: str | None
    priority: int | None
    run_at: datetime | str | None
    start_by: datetime | str | None
    deadline: datetime | str | None
    max_attempts: int | None
    tags: list[str] | None
    tokens: int | None
    share: str | None
    """Whose share of the queue it takes, if not the user's."""
    callback: dict[str, str] | None
    """Whom to tell when it ends: `{"url": …}` or `{"endpoint": …}`."""
    completion: Mapping[str, Any] | None
    """The job to submit when it ends: `{"capability": …, "input": …}`."""


class JobsQuery(TypedDict, total=False):
    """Which jobs to list; `limit` is the size of a page."""

    state: str | None
    capability: str | None
    queue: str | None
    tag: str | None
    since: datetime | str | None
    flow: str | None
    batch: str | None
    limit: int | None


class UsageQuery(TypedDict, total=False):
    """What to add up: `by` is tag, capability, model, user or day."""

    by: str | None
    since: datetime | str | None
    until: datetime | str | None
    everyone: bool | None
    limit: int | None


class EventsQuery(TypedDict, total=False):
    """Which events to follow: all, or those about one of these."""

    flow: str | None
    batch: str | None
    tag: str | None
    topic: str | None
    """What applications publish under this name; see docs/events.md."""


class RetryQuery(TypedDict, total=False):
    """Which dead letters to queue again."""

    fingerprint: str | None
    capability: str | None
    queue: str | None
    limit: int | None
    canary: int | None
    rate: float | None
    dry_run: bool


def is_final(seen: Mapping[str, object]) -> bool:
    """Say whether nothing happens to a job, flow or batch any more by itself."""
    return seen["state"] in _ENDS
