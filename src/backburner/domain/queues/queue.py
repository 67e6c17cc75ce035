"""
The policy of a queue, and how many of its jobs may start.

A rate counts starts in windows of a fixed length, which begin at multiples of it. Jobs
over a limit stay queued.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from backburner.domain.errors import ConfigurationError
from backburner.domain.jobs.job import Instant
from backburner.domain.queues.fairness import MAX_WEIGHT

MAX_NAME = 100
_MILLISECOND = timedelta(milliseconds=1)

BULK: Final = "backburner.bulk"
"""The queue of bulk actions, which every worker serves."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A maximum number of starts per window of time."""

    limit: int
    per: timedelta

    def __post_init__(self) -> None:
        if self.limit < 1 or self.per < _MILLISECOND:
            raise ConfigurationError(
                "a rate must be at least 1 start per window of 1 ms or longer"
            )


MOST_KEPT = 10_000
LONGEST_KEPT = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Keep:
    """
    How long a queue keeps ended jobs, in place of the general retention.

    A job is deleted when it is older than its age, or when there are `count` newer
    ones, but because of a count not within ten minutes of its end. Without an age, the
    general retention applies.
    """

    succeeded: timedelta | None = None
    """The age at which jobs that succeeded are deleted."""
    failed: timedelta | None = None
    """The age at which dead letters are deleted."""
    succeeded_count: int | None = None
    """How many of the newest succeeded jobs are kept."""
    failed_count: int | None = None

    def __post_init__(self) -> None:
        for age in (self.succeeded, self.failed):
            if age is not None and not _MILLISECOND <= age <= LONGEST_KEPT:
                raise ConfigurationError(
                    "keep: an age must be positive and at most "
                    f"{LONGEST_KEPT.days} days, not {age}"
                )
        for count in (self.succeeded_count, self.failed_count):
            if count is not None and not 1 <= count <= MOST_KEPT:
                raise ConfigurationError(
                    f"keep: a count must be from 1 to {MOST_KEPT}, not {count}"
                )
        limits = (
            *(self.succeeded, self.failed),
            *(self.succeeded_count, self.failed_count),
        )
        if all(limit is None for limit in limits):
            raise ConfigurationError(
                "keep: give at least one age or count, or leave `keep` out"
            )


@dataclass(frozen=True, slots=True)
class Queue:
    """The limits of a queue; `None` means unlimited."""

    name: str
    concurrency: int | None = None
    """How many of its jobs may run at once, on all workers together."""
    per_worker: int | None = None
    """How many of its jobs may run at once on one worker."""
    rate: Rate | None = None
    weights: Mapping[str, int] = field(default_factory=dict)
    """The weights of shares by name; 1 for shares that are not named."""
    waiting: int | None = None
    """How many jobs of one share may wait; further submissions are refused."""
    keep: Keep | None = None
    """How long its ended jobs are kept, if not by the general retention."""

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_NAME or not self.name.isprintable():
            raise ConfigurationError(
                f"a queue's name must have 1 to {MAX_NAME} printable characters"
            )
        for limit in (self.concurrency, self.per_worker, self.waiting):
            if limit is not None and limit < 1:
                raise ConfigurationError(
                    f"queue {self.name!r}: a limit must be at least 1; to "
                    "stop the queue, pause it"
                )
        if not all(1 <= weight <= MAX_WEIGHT for weight in self.weights.values()):
            raise ConfigurationError(
                f"queue {self.name!r}: a weight must be a whole number from 1 "
                f"to {MAX_WEIGHT}"
            )


class Gate(NamedTuple):
    """A queue's limits and their current use, as a claim reads them."""

    paused: bool
    concurrency: int | None
    rate: int | None
    per: int
    """The window's length, in milliseconds."""
    window: Instant
    """The start of the last window that was counted."""
    started: int
    """How many jobs were started in that window."""
    limited_until: Instant | None
    closed: int
    """How many windows were closed while jobs were waiting."""


class Admission(NamedTuple):
    """How many jobs may start now, and the window that counts them."""

    allowed: int
    window: Instant
    started: int
    is_rated: bool
    """Whether the rate is what allows no more."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue as shown to operators."""

    name: str
    paused: bool = False
    concurrency: int | None = None
    per_worker: int | None = None
    rate: Rate | None = None
    weights: Mapping[str, int] = field(default_factory=dict)
    waiting: int | None = None
    keep: Keep | None = None
    limited_until: Instant | None = None
    """When its rate allows the next start, if its window is closed."""
    opens_in: int | None = None
    """The same in milliseconds from now, by the store's clock."""
    untold: int = 0
    """How many of its windows closed without an event so far."""

    @property
    def is_limited(self) -> bool:
        """Whether the end of a job may allow another one to start."""
        limits = (self.concurrency, self.per_worker, self.rate)
        return any(limit is not None for limit in limits)


class Totals(NamedTuple):
    """How many jobs of a queue ended, including deleted ones."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class Throttling(NamedTuple):
    """Windows of a queue that closed while jobs waited, reported once."""

    queue: str
    windows: int
    until: Instant


def admit(gate: Gate, *, wanted: int, running: int, now: Instant) -> Admission:
    """Return how many of the wanted jobs may start."""
    window, started = _current(gate, now)
    if gate.paused:
        return Admission(0, window, started, is_rated=False)
    slots = wanted
    if gate.concurrency is not None:
        slots = min(wanted, max(0, gate.concurrency - running))
    left = slots if gate.rate is None else max(0, gate.rate - started)
    return Admission(min(slots, left), window, started, is_rated=left < slots)


def count(gate: Gate, admission: Admission, *, taken: int, waiting: bool) -> Gate:
    """Return the gate after jobs were claimed; a window is closed once."""
    counted = gate._replace(window=admission.window, started=admission.started + taken)
    if not (admission.is_rated and taken == admission.allowed and waiting):
        return counted
    until = admission.window + gate.per
    is_new = gate.limited_until is None or gate.limited_until < until
    return counted._replace(limited_until=until, closed=gate.closed + is_new)


def _current(gate: Gate, now: Instant) -> tuple[Instant, int]:
    """
    Return the current window and the number of starts in it.

    It never goes back to an earlier window, or two clocks that differ slightly would
    open one twice, unless the window is so far ahead that the clock was set back.
    """
    if gate.rate is None:
        return 0, 0
    begins = now - now % gate.per
    if begins <= gate.window <= now + gate.per:
        return gate.window, gate.started
    return begins, 0
