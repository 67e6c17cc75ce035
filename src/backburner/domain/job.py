"""
What a job is.

An instant is an integer: milliseconds since the epoch, UTC. The wire shows RFC 3339.
Inputs and outputs are JSON text: the engine carries them and never looks inside.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from backburner.domain.errors import Problem

Instant: TypeAlias = int
"""Milliseconds since the epoch, UTC."""


class JobState(StrEnum):
    """Where a job stands; each says who takes it away from there."""

    BLOCKED = "blocked"
    """Waits for an earlier step, whose settlement queues it."""
    SCHEDULED = "scheduled"
    """Waits for its time: delay, back-off or a provider's limit."""
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

PRIORITIES = range(10)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose job it is: rows are seen by their owner only."""

    tenant: str
    user: str


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


class Submitted(NamedTuple):
    """What became of a `NewJob`."""

    id: str
    state: JobState
    replayed: bool = False
    """The idempotency key was known: `id` is the job it stands for."""


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
