"""Queues, schedules, lanes, budgets and endpoints."""

from typing import Any, Literal, NotRequired, TypedDict

from backburner.shapes import Time


class Rate(TypedDict):
    """A maximum number of starts in each window of time."""

    limit: int
    per_seconds: float


class Totals(TypedDict):
    """How many jobs of a queue have ended, including deleted ones."""

    completed: int
    failed: int
    cancelled: int


class Keep(TypedDict):
    """How long a queue keeps ended jobs; null means the general retention."""

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
    """Jobs in the state `waiting`: for a signal, an answer or a child job."""
    oldest_queued_at: Time | None
    paused: bool
    concurrency: int | None
    """Maximum number of running jobs in total."""
    per_worker: int | None
    """Maximum number of running jobs per worker."""
    rate: Rate | None
    limited_until: Time | None
    """When its rate allows the next start, if not now."""
    weights: dict[str, int]
    """Weights of shares by name; 1 if not listed."""
    waiting: int | None
    """Maximum number of waiting jobs per share."""
    keep: Keep | None
    totals: Totals
    submitted_per_minute: float
    """
    Jobs submitted in the last minute. If there were more than 10,000 events, it is an
    estimate from 10,000 of them, spread over the minute.
    """
    ended_per_minute: float
    """Jobs that ended in the last minute, measured in the same way."""


class Schedule(TypedDict):
    """A job that is submitted repeatedly."""

    name: str
    capability: str
    cron: str
    timezone: str
    missed: str
    """What happens to ticks while no process ran."""
    next_at: Time
    next_ticks: list[Time]
    """The next three times, beginning with `next_at`; empty if it is paused."""
    last_at: Time | None
    paused: bool
    declared: bool
    """Whether the code of an application declares it. To change or delete it, change
    the code."""
    tenant: str | None
    """Owner of its jobs, unless it is declared by code."""
    user: str | None
    input: Any
    """Input of its jobs; null if declared by code, and without `queues:admin`."""


class Worker(TypedDict):
    """A worker process."""

    id: str
    host: str
    pid: int
    slots: int
    queues: list[str]
    started_at: Time
    draining: bool
    """Whether it finishes its jobs and claims no more."""
    running: int | None
    """Jobs that it ran at its last heartbeat; null before the first one."""
    event_loop_lag_seconds: float | None
    """Maximum delay of its event loop in the ten seconds before that heartbeat: high if
    a handler blocks the loop."""
    memory_bytes: int | None
    """Memory that its process used then; null if the system does not report it."""


class CapabilityInfo(TypedDict):
    """A capability that the server knows, with JSON schemas of its input and output."""

    name: str
    description: str
    queue: str
    timeout_seconds: float
    max_attempts: int
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


class Lane(TypedDict):
    """A lane to a provider, shared by all workers."""

    name: str
    state: str
    """`open`, `parked` until a time, or `probing`: one call at a time."""
    pace: float
    """How many calls may start per minute now."""
    ceiling: float | None
    """
    The estimated maximum of calls per minute; null until a call is refused or the
    provider reports a limit.
    """
    requests: int | None
    """Declared limit of calls per minute."""
    tokens: int | None
    """Declared limit of tokens per minute."""
    at_once: int | None
    """Declared limit of concurrent calls."""
    spacing_seconds: float
    """Declared minimum time between two starts."""
    in_use: int
    """Number of calls that are being made."""
    last_minute: int
    """Number of calls started within the last minute."""
    refused_last_minute: int
    """Number of those calls that the provider refused (429 or 529)."""
    waiting: int
    """Estimated number of calls that wait for a permit."""
    done_at: Time | None
    """When all waiting calls will have started, at the current pace."""
    parked_until: Time | None
    parkings: int
    """How often it was parked, in total."""


class BudgetRule(TypedDict):
    """A budget in force."""

    scope: str
    of: str | None
    """`null` means each value of the scope."""
    unit: Literal["tokens", "money"]
    limit: int | str
    """Tokens as a number, or dollars as a decimal text."""
    per_seconds: int
    overrun: NotRequired[Literal["extend", "stop"]]


class Budget(TypedDict):
    """The state of a budget in one window, for one value of its scope."""

    scope: str
    of: str
    unit: Literal["tokens", "money"]
    limit: int | str
    """Tokens as a number, or dollars as a decimal text."""
    per_seconds: int
    window_start: Time
    window_end: Time
    held: int | str
    """Reserved for jobs that have not ended."""
    settled: int | str
    """Used, including the overdraft."""
    overdraft: int | str
    """Used beyond what was held."""
    left: int | str
    """Tokens as a number, or dollars as a decimal text."""


class Budgets(TypedDict):
    """The caller's budgets; with the scope `budgets:admin`, all budgets."""

    items: list[Budget]
    budgets: list[BudgetRule]


class BudgetPoint(TypedDict):
    """The state of a budget at one time."""

    at: Time
    settled: int | str
    """Used until then, including the overdraft."""
    held: int | str
    """Reserved then for jobs that had not ended."""
    limit: int | str
    """Tokens as a number, or dollars as a decimal text."""


class BudgetHistory(TypedDict):
    """How a budget was used in its current window."""

    window_start: Time
    window_end: Time
    every_seconds: int
    """Minimum time between two points; there is none while nothing changes."""
    points: list[BudgetPoint]
    """Oldest first; the last one is the state now."""


class Endpoint(TypedDict):
    """A webhook endpoint, without its secrets."""

    id: str
    url: str
    version: int
    """Version of the secret that signs, from 1."""
    created_at: Time
    rotated_at: Time | None
    disabled_at: Time | None
    """Since when it is disabled; null if it is enabled."""
    disabled_reason: str | None


class SecretEndpoint(Endpoint):
    """A webhook endpoint, with its secrets."""

    secrets: list[str]
    """`whsec_…`, newest first; two during the day after a rotation."""
