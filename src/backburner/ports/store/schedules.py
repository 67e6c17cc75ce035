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
        """
        Store schedules that code declares; one with the same times keeps its next tick.

        A pause stays. One that was saved under the same name is replaced.
        """
        ...

    async def save_schedule(self, schedule: ScheduleState) -> bool:
        """
        Store a schedule that no code declares, in place of the one it had; durable.

        With the same times it keeps its next tick, and its pause in any case. `False`:
        the name is one that code declares.
        """
        ...

    async def delete_schedule(self, name: str) -> bool:
        """Delete a schedule that no code declares; `False`: there is none."""
        ...

    async def pause_schedule(
        self, name: str, *, paused: bool, next_at: Instant
    ) -> bool:
        """
        Have a schedule fire nothing, or go on at `next_at`; `False`: there is none.

        To ask for what is the case already changes nothing.
        """
        ...

    async def schedules(self) -> tuple[Instant, Sequence[ScheduleState]]:
        """Return the store's time and the schedules, by name."""
        ...

    async def fire(self, firing: Firing) -> bool:
        """
        Store the jobs and advance the schedule, durably.

        `False` if another process did, or if it is paused.
        """
        ...
