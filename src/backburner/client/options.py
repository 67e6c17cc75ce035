"""Typed options for requests."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypedDict

from backburner.domain.groups.batch import BatchState
from backburner.domain.jobs.job import FINAL

_ENDS: Final = frozenset({*FINAL, BatchState.FINISHED})


class WebhookEvent(TypedDict):
    """The content of a webhook."""

    type: str
    timestamp: str
    data: dict[str, Any]


class BudgetOptions(TypedDict, total=False):
    """A budget: `tokens` or `money`, and the window and value that it applies to."""

    overrun: str
    """`extend` or `stop`: see docs/budgets.md."""
    of: str | None
    tokens: int | None
    money: str | None
    per_seconds: int


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule."""

    input: Any
    timezone: str
    missed: str


class JobChange(TypedDict, total=False):
    """Changes to a job that has not started; what is left out stays as it is."""

    priority: int
    run_at: datetime | str | None
    """A new start time; `None`: as soon as possible."""


SAME_INPUT: Final = object()
"""Stands for the input of the original job."""


class SubmitOptions(TypedDict, total=False):
    """Options of a job; the server decides what is `None` or left out."""

    queue: str | None
    priority: int | None
    run_at: datetime | str | None
    start_by: datetime | str | None
    deadline: datetime | str | None
    max_attempts: int | None
    tags: list[str] | None
    metadata: Mapping[str, str] | None
    """Texts by name that are kept with the job and shown with it."""
    tokens: int | None
    share: str | None
    """The share of the queue that it belongs to; by default, that of its user."""
    callback: dict[str, str] | None
    """The webhook to send when it ends: `{"url": …}` or `{"endpoint": …}`."""
    completion: Mapping[str, Any] | None
    """The job to submit when it ends: `{"capability": …, "input": …}`."""


class JobsQuery(TypedDict, total=False):
    """Which jobs to list; `limit` is the size of a page."""

    state: str | None
    capability: str | None
    queue: str | None
    tag: str | None
    metadata: Mapping[str, str] | None
    """Each of these names has this text in the metadata of the job."""
    user: str | None
    since: datetime | str | None
    until: datetime | str | None
    flow: str | None
    batch: str | None
    worker: str | None
    sort: str | None
    limit: int | None


class UsageQuery(TypedDict, total=False):
    """The usage to add up: `by` is tag, capability, model, user, day or minute."""

    by: str | None
    since: datetime | str | None
    until: datetime | str | None
    everyone: bool | None
    limit: int | None


class EventsQuery(TypedDict, total=False):
    """The events to follow: all, or those of one flow, batch, tag or topic."""

    flow: str | None
    batch: str | None
    tag: str | None
    topic: str | None
    """A topic of an application; see docs/events.md."""


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
    """Return whether a job, flow or batch has ended."""
    return seen["state"] in _ENDS
