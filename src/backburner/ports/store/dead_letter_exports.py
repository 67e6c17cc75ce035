"""The contract for the export of dead letters to a broker."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from backburner.domain.jobs.job import Job


class UnexportedDeadLetters(NamedTuple):
    """Failed jobs in order, and the number of the last event that was read."""

    jobs: Sequence[Job]
    upto: int


class DeadLetterExportStore(Protocol):
    """A cursor in the event log: failures up to it have been exported."""

    async def begin_dead_letter_export(self) -> None:
        """Set the cursor to the newest event, durably, unless there is one."""
        ...

    async def unexported_dead_letters(
        self, exporter: str, *, span: timedelta, limit: int
    ) -> UnexportedDeadLetters | None:
        """
        Return the jobs that failed after the cursor; `None` if there are none.

        No other exporter gets any until this one has finished, or its lease has
        expired. Jobs that were retried meanwhile are omitted. Failures in transactions
        that are still open are returned later; none is skipped.
        """
        ...

    async def mark_dead_letters_exported(self, exporter: str, *, upto: int) -> bool:
        """
        Advance the cursor, durably, and let others export.

        `False` if the lease has expired and another exporter has started: it exports
        them again.
        """
        ...
