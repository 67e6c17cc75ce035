"""The part of a store that knows which dead letters a broker was told of."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from backburner.domain.jobs.job import Job


class UnexportedDeadLetters(NamedTuple):
    """Jobs that failed, in that order, and the event up to which there are no more."""

    jobs: Sequence[Job]
    upto: int


class DeadLetterExportStore(Protocol):
    """A mark in the event log: all that failed below it is known to the broker."""

    async def begin_dead_letter_export(self) -> None:
        """Set the mark at what has happened by now, durable, unless there is one."""
        ...

    async def unexported_dead_letters(
        self, exporter: str, *, span: timedelta, limit: int
    ) -> UnexportedDeadLetters | None:
        """
        Return what failed above the mark, whole; `None` if nothing did.

        Nobody else gets anything until this exporter says that it is done, or the span
        is over. Jobs that were retried since are left out. No job is passed over that
        may still appear: those behind an open transaction come when it is over.
        """
        ...

    async def mark_dead_letters_exported(self, exporter: str, *, upto: int) -> bool:
        """
        Move the mark, durable, and let others export.

        `False` if the span was over and somebody else began: they tell of it again.
        """
        ...
