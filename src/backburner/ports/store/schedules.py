"""Schedules and their ticks."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from backburner.domain.jobs.job import Instant, NewJob
from backburner.domain.queues.schedule import ScheduleState


class Firing(NamedTuple):
    """Ticks of a schedule that fire together, and its next tick."""

    name: str
    expected: Instant
    """The `next_at` that the schedule must still have."""
    next_at: Instant
    last_at: Instant | None
    jobs: Sequence[NewJob]


class ScheduleStore(Protocol):
    """Stores schedules."""

    async def plan(self, schedules: Sequence[ScheduleState]) -> None:
        """Store schedules; one whose times are the same keeps its next tick."""
        ...

    async def schedules(self) -> tuple[Instant, Sequence[ScheduleState]]:
        """Return the store's time and the schedules, by name."""
        ...

    async def fire(self, firing: Firing) -> bool:
        """
        Store the jobs and advance the schedule, durably.

        `False` if another process did.
        """
        ...
