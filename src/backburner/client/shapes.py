"""What the server sends and takes, under typed names."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NotRequired, TypedDict

from backburner.client.usage_shapes import Receipt, Usage
from backburner.domain.groups.batch import BatchState
from backburner.domain.jobs.job import FINAL

_ENDS: Final = frozenset({*FINAL, BatchState.FINISHED})


class JobError(TypedDict):
    """Why a job ended or was put back."""

    code: str
    message: str
    retryable: bool
    retry_after: NotRequired[float | None]


class Progress(TypedDict):
    """How far a job is."""

    done: float
    total: float
    message: NotRequired[str]


class Signal(TypedDict):
    """A signal that is stored."""

    job_id: str
    name: str


class Question(TypedDict):
    """A question that a job asks people."""

    job_id: str
    name: str
    user: str
    capability: str
    question: str
    choices: list[str] | None
    schema: dict[str, Any] | None
    error: str | None
    asked_at: str
    until: str | None


class Wait(TypedDict):
    """What the handler of a job waits for."""

    reason: str
    """`sleep`, `lane`, `signal`, `question` or `job`."""
    name: NotRequired[str]
    until: NotRequired[str]


class Job(TypedDict):
    """A job as the server shows it, with more than is named here."""

    id: str
    user: str
    capability: str
    queue: str
    state: str
    priority: int
    tags: list[str]
    attempt: int
    max_attempts: int
    generation: int
    crashes: int
    progress: Progress | None
    error: JobError | None
    created_at: str
    run_at: str | None
    started_at: str | None
    finished_at: str | None
    wait: Wait | None
    """What its handler waits for, if it is scheduled or waiting."""
    flow_id: str | None
    step: str | None
    """Its name within that flow."""
    batch_id: str | None
    forked_from: NotRequired[str | None]
    """The job that it is a fork of."""
    input: NotRequired[Any]
    output: NotRequired[Any]
    """There when one job is asked for and it has succeeded."""
    attempts: NotRequired[list[dict[str, Any]]]
    usage: NotRequired[Usage]
    """There if it used any model."""
    receipt: NotRequired[Receipt]
    """There in answer to a cancel."""


class WebhookEvent(TypedDict):
    """What a webhook tells."""

    type: str
    timestamp: str
    data: dict[str, Any]


class Event(TypedDict):
    """An event of a job, flow, batch, queue or lane, or one of an application."""

    seq: int
    job_id: NotRequired[str]
    """What it is about: one of these six."""
    flow_id: NotRequired[str]
    batch_id: NotRequired[str]
    queue: NotRequired[str]
    lane: NotRequired[str]
    topic: NotRequired[str]
    n: int
    """Its place within that, from 1; 0 of an application's event."""
    type: str
    at: str
    data: dict[str, Any]


class FailureGroup(TypedDict):
    """Dead letters with the same cause."""

    fingerprint: str
    capability: str
    code: str
    count: int
    first_at: str
    last_at: str
    sample_id: str


class Retried(TypedDict):
    """What a retry of many came to."""

    matched: int
    retried: int
    remaining: int
    dry_run: bool


class Rate(TypedDict):
    """So many starts in each window of time."""

    limit: int
    per_seconds: float


class Totals(TypedDict):
    """How many jobs of a queue ever ended, also of those that are deleted."""

    completed: int
    failed: int
    cancelled: int


class Keep(TypedDict):
    """How long a queue keeps ended jobs; what is `None` is as everywhere."""

    succeeded_seconds: float | None
    failed_seconds: float | None
    succeeded_count: int | None
    failed_count: int | None


class Queue(TypedDict):
    """A queue, the jobs in it, and what it allows."""

    name: str
    blocked: int
    scheduled: int
    queued: int
    running: int
    suspended: int
    """How many are in the state `waiting`."""
    oldest_queued_at: str | None
    paused: bool
    concurrency: int | None
    per_worker: int | None
    rate: Rate | None
    limited_until: str | None
    weights: dict[str, int]
    waiting: int | None
    keep: Keep | None
    totals: Totals


class Budget(TypedDict):
    """How far a budget is used; amounts of money are dollars, as texts."""

    scope: str
    of: str
    unit: str
    limit: int | str
    per_seconds: int
    window_start: str
    window_end: str
    held: int | str
    settled: int | str
    overdraft: int | str
    left: int | str


class BudgetRule(TypedDict):
    """A budget that is in force; `of` is `None` if each value has as much."""

    scope: str
    of: str | None
    unit: str
    limit: int | str
    per_seconds: int
    overrun: NotRequired[str]
    """`extend` or `stop`."""


class Budgets(TypedDict):
    """The budgets that a caller is under; for operators, all, and their rules."""

    items: list[Budget]
    budgets: list[BudgetRule]


class BudgetOptions(TypedDict, total=False):
    """What a budget says: `tokens` or `money`, and for which window and value."""

    overrun: str
    """`extend` or `stop`: see docs/budgets.md."""
    of: str | None
    tokens: int | None
    money: str | None
    per_seconds: int


class Schedule(TypedDict):
    """Something that is submitted again and again."""

    name: str
    capability: str
    cron: str
    timezone: str
    missed: str
    next_at: str
    last_at: str | None


SAME_INPUT: Final = object()
"""Stands for the input of the job that is forked."""


class ForkQuote(TypedDict):
    """What a fork would take."""

    reused: list[str]
    """The steps whose results it would use."""
    quote: Any


class StoredStep(TypedDict):
    """A step of a job's handler whose result is stored."""

    n: int | None
    """Its number, for a fork from it."""
    name: str
    kind: str
    state: str
    """`stored`, `begun` or `in_doubt`."""
    doubts: int
    run: int
    stored_at: str
    size: int
    result: Any


class Lane(TypedDict):
    """A lane to a provider, shared by the whole fleet."""

    name: str
    state: str
    pace: float
    """Calls a minute that may start now."""
    ceiling: float | None
    """The most that are believed to be served, once any were refused."""
    requests: int | None
    tokens: int | None
    at_once: int | None
    spacing_seconds: float
    in_use: int
    last_minute: int
    parked_until: str | None
    parkings: int


class Endpoint(TypedDict):
    """Where webhooks go."""

    id: str
    url: str
    version: int
    created_at: str
    rotated_at: str | None
    disabled_at: str | None
    disabled_reason: str | None
    secrets: NotRequired[list[str]]
    """There when it is made or its secret rotated: the newest first."""


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
