"""
The policy of a queue, and how many of its jobs may start.

A rate counts starts in windows of a fixed length that begin at whole multiples of it.
Whoever is over a limit waits and is not dropped: the jobs stay queued.
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
"""The queue of bulk actions: every worker serves it, and it seldom has a job."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many starts in each window of time."""

    limit: int
    per: timedelta

    def __post_init__(self) -> None:
        if self.limit < 1 or self.per < _MILLISECOND:
            raise ConfigurationError("a rate is at least 1 per millisecond or longer")


MOST_KEPT = 10_000
LONGEST_KEPT = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Keep:
    """
    How long a queue keeps ended jobs, instead of the general retention.

    A job is deleted when it is older than its age or when there are `count` newer ones,
    but not within ten minutes of its end because of a count. Where no age is given, the
    general one holds.
    """

    succeeded: timedelta | None = None
    """The age at which jobs that succeeded are deleted."""
    failed: timedelta | None = None
    """The same of dead letters."""
    succeeded_count: int | None = None
    """How many of the newest jobs that succeeded are kept."""
    failed_count: int | None = None

    def __post_init__(self) -> None:
        for age in (self.succeeded, self.failed):
            if age is not None and not _MILLISECOND <= age <= LONGEST_KEPT:
                raise ConfigurationError(
                    f"keep: an age is over zero and at most {LONGEST_KEPT.days} days"
                )
        for count in (self.succeeded_count, self.failed_count):
            if count is not None and not 1 <= count <= MOST_KEPT:
                raise ConfigurationError(f"keep: a count is from 1 to {MOST_KEPT}")
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
    """What a queue allows; a limit that is not named is none."""

    name: str
    concurrency: int | None = None
    """How many of its jobs run at once, on all workers together."""
    per_worker: int | None = None
    """How many of them run at once on one worker."""
    rate: Rate | None = None
    weights: Mapping[str, int] = field(default_factory=dict)
    """How much more than others a share gets, by its name; 1 where it is not named."""
    waiting: int | None = None
    """How many jobs of one share may wait; who submits more is refused."""
    keep: Keep | None = None
    """How long its ended jobs are kept, if not by the general retention."""

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_NAME or not self.name.isprintable():
            raise ConfigurationError(
                f"a queue's name has 1 to {MAX_NAME} printable characters"
            )
        for limit in (self.concurrency, self.per_worker, self.waiting):
            if limit is not None and limit < 1:
                raise ConfigurationError(
                    f"queue {self.name!r}: a limit must be at least 1; to "
                    "stop the queue, pause it"
                )
        if not all(1 <= weight <= MAX_WEIGHT for weight in self.weights.values()):
            raise ConfigurationError(
                f"queue {self.name!r}: a weight is a whole number up to {MAX_WEIGHT}"
            )


class Gate(NamedTuple):
    """A queue's limits and how far they are used, as a claim finds them."""

    paused: bool
    concurrency: int | None
    rate: int | None
    per: int
    """The window's length, in milliseconds."""
    window: Instant
    """When the window began that was counted last."""
    started: int
    """How many jobs were started in it."""
    limited_until: Instant | None
    closed: int
    """How many windows were closed while jobs still waited."""


class Admission(NamedTuple):
    """How many jobs may start now, and in which window they count."""

    allowed: int
    window: Instant
    started: int
    is_rated: bool
    """Whether it is the rate that allows no more."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue as operators see it."""

    name: str
    paused: bool = False
    concurrency: int | None = None
    per_worker: int | None = None
    rate: Rate | None = None
    weights: Mapping[str, int] = field(default_factory=dict)
    waiting: int | None = None
    keep: Keep | None = None
    limited_until: Instant | None = None
    """When its window opens again, if it is closed now."""
    opens_in: int | None = None
    """The same in milliseconds from now, by the store's clock."""
    untold: int = 0
    """How many of its windows closed and nobody was told yet."""

    @property
    def is_limited(self) -> bool:
        """Whether the end of a job may let another one start."""
        limits = (self.concurrency, self.per_worker, self.rate)
        return any(limit is not None for limit in limits)


class Totals(NamedTuple):
    """How often jobs of a queue ended, also of those that are deleted."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class Throttling(NamedTuple):
    """Windows of a queue that were closed while jobs waited, each told once."""

    queue: str
    windows: int
    until: Instant


def admit(gate: Gate, *, wanted: int, running: int, now: Instant) -> Admission:
    """Say how many of the wanted jobs may start."""
    window, started = _current(gate, now)
    if gate.paused:
        return Admission(0, window, started, is_rated=False)
    slots = wanted
    if gate.concurrency is not None:
        slots = min(wanted, max(0, gate.concurrency - running))
    left = slots if gate.rate is None else max(0, gate.rate - started)
    return Admission(min(slots, left), window, started, is_rated=left < slots)


def count(gate: Gate, admission: Admission, *, taken: int, waiting: bool) -> Gate:
    """Return the gate after jobs were taken; a window closes once."""
    counted = gate._replace(window=admission.window, started=admission.started + taken)
    if not (admission.is_rated and taken == admission.allowed and waiting):
        return counted
    until = admission.window + gate.per
    is_new = gate.limited_until is None or gate.limited_until < until
    return counted._replace(limited_until=until, closed=gate.closed + is_new)


def _current(gate: Gate, now: Instant) -> tuple[Instant, int]:
    """
    Return the window of an instant and what was started in it.

    A window never gives way to an earlier one, or two clocks that differ a little
    would open it twice; unless it is so far ahead that the clock was set back.
    """
    if gate.rate is None:
        return 0, 0
    begins = now - now % gate.per
    if begins <= gate.window <= now + gate.per:
        return gate.window, gate.started
    return begins, 0
