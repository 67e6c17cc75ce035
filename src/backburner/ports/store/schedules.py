"""Schedules and their ticks."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from backburner.domain.jobs.job import Instant, NewJob
from backburner.domain.queues.schedule import ScheduleState
from backburner.ports.store.keys import AuditEntry


class Firing(NamedTuple):
    """Ticks of a schedule that fire together, and its next tick."""

    name: str
    expected: Instant
    """The `next_at` that the stored schedule must still have."""
    next_at: Instant
    last_at: Instant | None
    jobs: Sequence[NewJob]
    saved: ScheduleState | None = None
    """A saved schedule as it was read, which it must still be; `None`: declared."""


class ScheduleStore(Protocol):
    """Stores schedules."""

    async def plan(self, schedules: Sequence[ScheduleState]) -> None:
        """
        Store schedules that code declares.

        A schedule with unchanged times keeps its next tick, and its pause in any case.
        A saved schedule of the same name is replaced.
        """
        ...

    async def save_schedule(
        self, schedule: ScheduleState, entries: Sequence[AuditEntry] = ()
    ) -> bool:
        """
        Store a schedule that no code declares, durably, replacing an earlier one.

        With unchanged times it keeps its next tick, and its pause in any case. Returns
        `False` if code declares a schedule of this name. Otherwise `entries` are added
        to the audit log in the same transaction.
        """
        ...

    async def delete_schedule(self, name: str) -> bool:
        """Delete a schedule that no code declares; `False` if there is none."""
        ...

    async def pause_schedule(
        self, name: str, *, paused: bool, next_at: Instant
    ) -> bool:
        """
        Pause a schedule, or resume it at `next_at`; `False` if there is none.

        Without a change of the pause nothing is written.
        """
        ...

    async def schedules(self) -> tuple[Instant, Sequence[ScheduleState]]:
        """Return the store's time and the schedules, by name."""
        ...

    async def fire(self, firing: Firing) -> bool:
        """
        Store the jobs and advance the schedule, durably.

        `False` if another process did, if it is paused, or if it was saved anew with
        another capability, owner or input.
        """
        ...
