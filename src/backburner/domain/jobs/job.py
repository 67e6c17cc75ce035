"""
Jobs and their parts.

An instant is an integer: milliseconds since the epoch, UTC. The API shows RFC 3339.
Inputs and outputs are JSON texts that the engine stores without reading them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from backburner.domain.errors import Problem

Instant: TypeAlias = int
"""Milliseconds since the epoch, UTC."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant_of(moment: datetime) -> Instant:
    """Convert an aware datetime; the rest of a millisecond is dropped."""
    # A float would round the last moments of 9999 up into a year that does not exist.
    return (moment - _EPOCH) // timedelta(milliseconds=1)


EARLIEST: Final = instant_of(datetime.min.replace(tzinfo=UTC))
LATEST: Final = instant_of(datetime.max.replace(tzinfo=UTC))
"""The last instant that can be written by RFC 3339, in the year 9999."""


def rfc3339(instant: Instant) -> str:
    """
    Format an instant by RFC 3339, in UTC, with milliseconds.

    An instant that no year of four digits has, such as the sum of a far time and a
    duration, is written as the nearest that one has.
    """
    within = min(max(instant, EARLIEST), LATEST)
    moment = _EPOCH + timedelta(milliseconds=within)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JobState(StrEnum):
    """The state of a job, and what takes it out of that state."""

    BLOCKED = "blocked"
    """Waits for an earlier step, whose settlement queues it."""
    SCHEDULED = "scheduled"
    """Waits for a time: a delay, a back-off or a provider's limit."""
    WAITING = "waiting"
    """Waits for a signal, an answer or a child job, or until its timeout."""
    QUEUED = "queued"
    """May be claimed by a worker."""
    RUNNING = "running"
    """Held by one worker under its lease."""
    SUCCEEDED = "succeeded"
    """Ended with an output."""
    FAILED = "failed"
    """Ended without an output: a dead letter. A retry by hand queues it again."""
    CANCELLED = "cancelled"
    """Ended by a request, or because a prerequisite failed."""

    @property
    def is_final(self) -> bool:
        """Whether the job has ended: only a retry by hand changes it."""
        return self in FINAL


FINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
WAITING = frozenset({JobState.BLOCKED, JobState.SCHEDULED, JobState.QUEUED})
LIVE = frozenset({*JobState} - FINAL)

SUSPENDED = frozenset({JobState.SCHEDULED, JobState.WAITING})
"""The states of a job whose handler waits."""


class WaitReason(StrEnum):
    """What a suspended job waits for."""

    SLEEP = "sleep"
    LANE = "lane"
    """A provider's lane was full after the run had paid for a call."""
    SIGNAL = "signal"
    QUESTION = "question"
    JOB = "job"
    """A child job."""


class Wait(NamedTuple):
    """What a suspended job waits for."""

    reason: WaitReason
    name: str | None = None
    """The signal's or question's name, the lane or the child's id."""
    until: Instant | None = None
    """When it is queued at the latest; `None`: only by a signal."""


PRIORITIES = range(10)


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a row; other owners do not see it."""

    tenant: str
    user: str

    def covers(self, owner: "Owner") -> bool:
        """Return whether rows of this owner are visible."""
        return self == owner


@dataclass(frozen=True, slots=True)
class Tenant:
    """All users of a tenant, for readers that may see the rows of each of them."""

    tenant: str

    def covers(self, owner: Owner) -> bool:
        """Return whether rows of this owner are visible."""
        return self.tenant == owner.tenant


Visibility = Owner | Tenant
"""Which rows a reader sees."""


@dataclass(slots=True)
class NewJob:
    """A validated job, ready to be stored."""

    id: str
    owner: Owner
    capability: str
    queue: str
    input: str
    created_at: Instant
    max_attempts: int
    priority: int = 0
    run_at: Instant | None = None
    start_by: Instant | None = None
    deadline: Instant | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, str] | None = None
    """What the caller keeps with it; the platform only searches it."""
    request_id: str | None = None
    idempotency_key: str | None = None
    body_hash: str | None = None
    flow: int | None = None
    step: str | None = None
    """Its name within its flow."""
    needs: int = 0
    """The number of its prerequisites."""
    open: int = 0
    """How many prerequisites have not ended; the job is blocked until it is 0."""
    batch: int | None = None
    callback: str | None = None
    """What follows its end, as JSON; see `domain/jobs/completion.py`."""
    traceparent: str | None = None
    tokens: int | None = None
    """The number of tokens that it is expected to use; `None` if unknown."""
    model: str | None = None
    """The model that it is expected to call."""
    share: str | None = None
    """The share of the queue that it belongs to; by default, that of its user."""
    holds: int = 0
    """How many budgets hold an amount for it."""
    money: int | None = None
    """The expected cost in micro-dollars; stored with its holds."""
    key: str | None = None
    """The API key that it was submitted with; stored with its holds."""
    kept: bool = False
    """Whether its queue has a retention policy of its own."""
    never_refused: bool = False
    """Whether it is stored even if a budget is exhausted; its use still counts."""


class Consequences(NamedTuple):
    """What must change in the transaction that ends a job, besides the job."""

    flow: int | None = None
    """The flow whose steps wait for it."""
    calls_back: bool = False
    holds: int = 0
    """How many budgets hold an amount for it."""
    job_id: str = ""
    step: str = ""
    """The name by which dependent steps refer to it."""


class Submitted(NamedTuple):
    """The result of submitting a `NewJob`."""

    id: str
    state: str
    replayed: bool = False
    """Whether the idempotency key was known; `id` is then the earlier job."""


class Need(NamedTuple):
    """The result of a prerequisite, as passed to its dependent."""

    step: str
    job_id: str
    state: JobState
    output: str | None
    error: Mapping[str, Any] | None


class Claim(NamedTuple):
    """A claimed job. Later writes must match `(seq, token)`."""

    seq: int
    id: str
    token: str
    tenant: str
    user: str
    capability: str
    queue: str
    input: str
    priority: int
    rank: int
    generation: int
    attempt: int
    max_attempts: int
    crashes: int
    throttled: int
    deadline: Instant | None
    created_at: Instant
    ready_at: Instant
    started_at: Instant
    request_id: str | None
    flow: int | None = None
    batch: int | None = None
    step: str | None = None
    needs: int = 0
    """The number of its prerequisites."""
    callback: str | None = None
    traceparent: str | None = None
    events: int = 0
    """The number of its `job.started` event."""
    tokens: int | None = None
    model: str | None = None
    share: str | None = None
    holds: int = 0
    given: Sequence[Need] = ()
    """The results of its prerequisites."""

    @property
    def consequences(self) -> Consequences | None:
        """What its end changes besides the job; `None` if nothing."""
        return consequences(self)


@dataclass(frozen=True, slots=True)
class Job:
    """A stored job."""

    seq: int
    id: str
    owner: Owner
    capability: str
    queue: str
    state: JobState
    priority: int
    generation: int
    attempt: int
    max_attempts: int
    crashes: int
    throttled: int
    events: int
    input: str
    created_at: Instant
    token: str | None = None
    worker: str | None = None
    run_at: Instant | None = None
    start_by: Instant | None = None
    deadline: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    output: str | None = None
    error: Problem | None = None
    fingerprint: str | None = None
    progress: str | None = None
    tags: tuple[str, ...] = field(default=())
    metadata: Mapping[str, str] | None = None
    request_id: str | None = None
    body_hash: str | None = None
    flow: int | None = None
    step: str | None = None
    batch: int | None = None
    callback: str | None = None
    traceparent: str | None = None
    tokens: int | None = None
    model: str | None = None
    share: str | None = None
    holds: int = 0
    flow_id: str | None = None
    batch_id: str | None = None
    wait: Wait | None = None
    """What its handler waits for, if it is suspended."""

    @property
    def consequences(self) -> Consequences | None:
        """What its end changes besides the job; `None` if nothing."""
        return consequences(self)


def first_state(job: NewJob) -> JobState:
    """Return the initial state of a new job."""
    if job.open:
        return JobState.BLOCKED
    return JobState.SCHEDULED if waits(job) else JobState.QUEUED


def waits(job: NewJob) -> bool:
    """Return whether a new job starts in the future."""
    return job.run_at is not None and job.run_at > job.created_at


def consequences(job: Claim | Job) -> Consequences | None:
    """Return what a job's end changes besides the job; `None` if nothing."""
    if job.flow is None and job.callback is None and not job.holds:
        return None
    calls_back = job.callback is not None
    return Consequences(job.flow, calls_back, job.holds, job.id, job.step or "")


def uuid7(ordered: int, chance: int) -> str:
    """Format a UUIDv7: `ordered` is 48 bits of milliseconds and 12 bits of order."""
    high = (ordered >> 12) << 16 | 0x7000 | ordered & 0xFFF
    low = 0x8000_0000_0000_0000 | chance
    digits = f"{high:016x}{low:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
