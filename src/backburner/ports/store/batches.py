"""Batches: opened, filled, counted and ended."""

from collections.abc import Callable, Sequence
from typing import Protocol

from backburner.domain.groups.batch import Batch, Counts, Members, NewBatch
from backburner.domain.jobs.job import Instant, NewJob, Submitted
from backburner.domain.jobs.transitions import Change
from backburner.ports.store.flows import GroupFilter


class BatchStore(Protocol):
    """Batches: jobs and flows that are counted and completed together."""

    async def open_batch(self, batch: NewBatch, members: Members) -> Submitted:
        """Store a batch and its first members, durable; all or none."""
        ...

    async def fill_batch(
        self, batch: int, members: Members, *, seal: bool
    ) -> Sequence[Submitted]:
        """
        Add members to a batch, durably; return the result of each.

        `IllegalTransition` if it is sealed. Members with known idempotency keys exist
        already, so repeating a call is no error.
        """
        ...

    async def find_batches(self, ids: Sequence[str]) -> Sequence[Batch]:
        """Return the batches that exist, in any order."""
        ...

    async def batches(
        self, where: GroupFilter, *, before: int | None, limit: int
    ) -> Sequence[Batch]:
        """Return batches, newest first, with `seq` below `before`."""
        ...

    async def count_batch(self, batch: int) -> Counts:
        """Count a batch's members by state."""
        ...

    async def cancel_batch(self, batch: int, change: Change) -> int:
        """Seal a batch and cancel its unfinished members; return how many."""
        ...

    async def batches_over(self, *, after: int = 0, limit: int) -> Sequence[int]:
        """
        Return sealed batches without unfinished members that have not ended.

        They are ordered by key, starting after `after`.
        """
        ...

    async def tell_batch(self, batch: int, *, now: Instant) -> bool:
        """
        Record a batch's progress, at most once a second.

        Return whether it was recorded.
        """
        ...

    async def finish_batch(
        self,
        batch: int,
        then: Callable[[Batch, Counts], Sequence[NewJob]],
        *,
        now: Instant,
    ) -> bool:
        """
        End a batch without unfinished members and store its completion.

        Once per generation.
        """
        ...
