"""Queues, schedules, lanes, budgets and endpoints."""

from typing import Any, Literal, NotRequired, TypedDict

from backburner.shapes import Time


class Rate(TypedDict):
    """So many starts in each window of time."""

    limit: int
    per_seconds: float


class Totals(TypedDict):
    """How often jobs of a queue ended, also of those that are deleted."""

    completed: int
    failed: int
    cancelled: int


class Keep(TypedDict):
    """How long a queue keeps ended jobs; what is null is as everywhere."""

    succeeded_seconds: float | None
    failed_seconds: float | None
    succeeded_count: int | None
    failed_count: int | None


class Queue(TypedDict):
    """A queue and the jobs in it."""

    name: str
    blocked: int
    scheduled: int
    queued: int
    running: int
    suspended: int
    """Jobs in the state `waiting`: for a signal, an answer or a child."""
    oldest_queued_at: Time | None
    paused: bool
    concurrency: int | None
    """Maximum number of running jobs in total."""
    per_worker: int | None
    """Maximum number of running jobs per worker."""
    rate: Rate | None
    limited_until: Time | None
    """When its rate lets jobs start again, if it does not now."""
    weights: dict[str, int]
    """Weights of shares by name; 1 if not listed."""
    waiting: int | None
    """Maximum number of waiting jobs per share."""
    keep: Keep | None
    totals: Totals


class Schedule(TypedDict):
    """Something that is submitted again and again."""

    name: str
    capability: str
    cron: str
    timezone: str
    missed: str
    """What happens to ticks while no process ran."""
    next_at: Time
    last_at: Time | None
    paused: bool
    declared: bool
    """Whether the code of an application declares it: it is changed and deleted
    there."""
    tenant: str | None
    """Whose jobs it submits, unless declared."""
    user: str | None
    input: Any
    """What its jobs are given; null if declared, and without `queues:admin`."""


class Worker(TypedDict):
    """A worker process."""

    id: str
    host: str
    pid: int
    slots: int
    queues: list[str]
    started_at: Time
    draining: bool
    """Whether it finishes its jobs and claims no others."""


class Lane(TypedDict):
    """A lane to a provider, shared by the whole fleet."""

    name: str
    state: str
    """`open`, `parked` until a time, or `probing`: one call at a time."""
    pace: float
    """How many calls a minute may start now."""
    ceiling: float | None
    """
    The most calls a minute that are believed to be served, once any were refused or the
    provider told.
    """
    requests: int | None
    """Calls a minute, as declared."""
    tokens: int | None
    """Tokens a minute, as declared."""
    at_once: int | None
    """Calls under way at once, as declared."""
    spacing_seconds: float
    """The least time between two starts."""
    in_use: int
    """Calls under way."""
    last_minute: int
    """Calls started within the last minute."""
    refused_last_minute: int
    """How many of these the provider refused (429 or 529)."""
    waiting: int
    """An estimate of how many calls wait for a permit."""
    done_at: Time | None
    """When all that wait will have started, at the present pace."""
    parked_until: Time | None
    parkings: int
    """How often it was parked, ever."""


class BudgetRule(TypedDict):
    """A budget that is in force."""

    scope: str
    of: str | None
    """`null`: each value has as much."""
    unit: Literal["tokens", "money"]
    limit: int | str
    """Tokens; of money, dollars as a decimal text."""
    per_seconds: int
    overrun: NotRequired[Literal["extend", "stop"]]


class Budget(TypedDict):
    """How far a budget is used in one window, for one value of its scope."""

    scope: str
    of: str
    unit: Literal["tokens", "money"]
    limit: int | str
    """Tokens; of money, dollars as a decimal text."""
    per_seconds: int
    window_start: Time
    window_end: Time
    held: int | str
    """Promised to jobs that did not end yet."""
    settled: int | str
    """Used, the overdraft included."""
    overdraft: int | str
    """Used beyond what was held."""
    left: int | str
    """Tokens; of money, dollars as a decimal text."""


class Budgets(TypedDict):
    """The caller's budgets; with the scope `budgets:admin`, all there are."""

    items: list[Budget]
    budgets: list[BudgetRule]


class Endpoint(TypedDict):
    """Where webhooks go, without its secrets."""

    id: str
    url: str
    version: int
    """Which secret signs, from 1."""
    created_at: Time
    rotated_at: Time | None
    disabled_at: Time | None
    """Since when nothing is sent."""
    disabled_reason: str | None


class SecretEndpoint(Endpoint):
    """Where webhooks go, and what they are verified by."""

    secrets: list[str]
    """`whsec_…`, the newest first; two for a day after a rotation."""
