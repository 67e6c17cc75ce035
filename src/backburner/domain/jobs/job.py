"""
Jobs and their parts.

An instant is an integer: milliseconds since the epoch, UTC. The wire shows RFC 3339.
Inputs and outputs are JSON text: the engine carries them and never looks inside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from backburner.domain.errors import Problem

Instant: TypeAlias = int
"""Milliseconds since the epoch, UTC."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(instant: Instant) -> str:
    """Write an instant by RFC 3339, in UTC, with milliseconds."""
    moment = _EPOCH + timedelta(milliseconds=instant)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JobState(StrEnum):
    """Where a job stands; each says who takes it away from there."""

    BLOCKED = "blocked"
    """Waits for an earlier step, whose settlement queues it."""
    SCHEDULED = "scheduled"
    """Waits for its time: delay, back-off or a provider's limit."""
    WAITING = "waiting"
    """Waits for a signal, an answer or a child job, which queues it; or its timeout."""
    QUEUED = "queued"
    """May be claimed by a worker."""
    RUNNING = "running"
    """Held by one worker under its lease."""
    SUCCEEDED = "succeeded"
    """Ended with an output."""
    FAILED = "failed"
    """Ended for good without one: the dead letter. Retry by hand queues it again."""
    CANCELLED = "cancelled"
    """Ended because somebody asked, or because a prerequisite failed."""

    @property
    def is_final(self) -> bool:
        """Whether nothing happens any more by itself."""
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
    """When it starts at the latest; `None`: only when it is told."""


PRIORITIES = range(10)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose job it is: rows are seen by their owner only."""

    tenant: str
    user: str

    def covers(self, owner: "Owner") -> bool:
        """Say whether what belongs to this owner is seen."""
        return self == owner


@dataclass(frozen=True, slots=True)
class Tenant:
    """All users of a tenant: the view of those who may see what each of them has."""

    tenant: str

    def covers(self, owner: Owner) -> bool:
        """Say whether what belongs to this owner is seen."""
        return self.tenant == owner.tenant


Visibility = Owner | Tenant
"""Whose rows a reader sees."""


@dataclass(slots=True)
class NewJob:
    """A job as it is asked for, checked and ready to be stored."""

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
    request_id: str | None = None
    idempotency_key: str | None = None
    body_hash: str | None = None
    flow: int | None = None
    step: str | None = None
    """Its name within its flow."""
    needs: int = 0
    """How many prerequisites it has …"""
    open: int = 0
    """… and how many of them did not end yet: while there are any, it is blocked."""
    batch: int | None = None
    callback: str | None = None
    """What follows its end, as JSON; see `domain/jobs/completion.py`."""
    traceparent: str | None = None
    tokens: int | None = None
    """What it is expected to cost; `None`: nobody said."""
    model: str | None = None
    """The model that it is expected to call."""
    share: str | None = None
    """Whose share of the queue it takes, if not its user's."""
    holds: int = 0
    """How many budgets hold something for it."""
    money: int | None = None
    """What it is expected to cost, in micro-dollars; kept by its holds."""
    key: str | None = None
    """The API key that it was asked for with; kept by its holds."""
    kept: bool = False
    """Its queue keeps ended jobs by a policy of its own."""
    never_refused: bool = False
    """Budgets count what it uses, but have no say in whether it is stored."""


class Consequences(NamedTuple):
    """What a job's end means to others; all of it commits with that end."""

    flow: int | None = None
    """The flow whose steps wait for it."""
    calls_back: bool = False
    holds: int = 0
    """How many budgets hold something for it."""
    job_id: str = ""
    step: str = ""
    """What the steps that wait for it call it."""


class Submitted(NamedTuple):
    """What became of a `NewJob`."""

    id: str
    state: str
    replayed: bool = False
    """The idempotency key was known: `id` is the job it stands for."""


class Need(NamedTuple):
    """What a prerequisite came to, as its dependent sees it."""

    step: str
    job_id: str
    state: JobState
    output: str | None
    error: Mapping[str, Any] | None


class Claim(NamedTuple):
    """A job in a worker's hands. Whoever writes after this names `(seq, token)`."""

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
    """How many prerequisites it has …"""
    callback: str | None = None
    traceparent: str | None = None
    events: int = 0
    """The number of its `job.started`."""
    tokens: int | None = None
    model: str | None = None
    share: str | None = None
    holds: int = 0
    given: Sequence[Need] = ()
    """… and what they came to."""

    @property
    def consequences(self) -> Consequences | None:
        """What its end means to others; `None` if nothing."""
        return consequences(self)


@dataclass(frozen=True, slots=True)
class Job:
    """The durable record, as it is read back."""

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
        """What its end means to others; `None` if nothing."""
        return consequences(self)


def first_state(job: NewJob) -> JobState:
    """Return the state that a new job begins in."""
    if job.open:
        return JobState.BLOCKED
    return JobState.SCHEDULED if waits(job) else JobState.QUEUED


def waits(job: NewJob) -> bool:
    """Say whether a new job's time is yet to come."""
    return job.run_at is not None and job.run_at > job.created_at


def consequences(job: Claim | Job) -> Consequences | None:
    """Say what a job's end means to others; `None` if nothing."""
    if job.flow is None and job.callback is None and not job.holds:
        return None
    calls_back = job.callback is not None
    return Consequences(job.flow, calls_back, job.holds, job.id, job.step or "")


def uuid7(ordered: int, chance: int) -> str:
    """Write a UUIDv7: `ordered` is 48 bits of milliseconds and 12 of order."""
    high = (ordered >> 12) << 16 | 0x7000 | ordered & 0xFFF
    low = 0x8000_0000_0000_0000 | chance
    digits = f"{high:016x}{low:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
