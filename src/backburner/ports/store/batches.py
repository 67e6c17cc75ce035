"""Batches: opened, filled, counted and ended."""

from collections.abc import Callable, Sequence
from typing import Protocol

from backburner.domain.groups.batch import Batch, Counts, Members, NewBatch
from backburner.domain.jobs.job import Instant, NewJob, Submitted
from backburner.domain.jobs.transitions import Change
from backburner.ports.store.flows import GroupFilter


class BatchStore(Protocol):
    """Jobs and flows that are counted and end together."""

    async def open_batch(self, batch: NewBatch, members: Members) -> Submitted:
        """Store a batch and its first members, durable; all or none."""
        ...

    async def fill_batch(
        self, batch: int, members: Members, *, seal: bool
    ) -> Sequence[Submitted]:
        """
        Add to a batch, durable; return what became of each member.

        `IllegalTransition` if it takes no more. Members whose idempotency keys are
        known are there already: a repeat of the last filling is no error.
        """
        ...

    async def find_batches(self, ids: Sequence[str]) -> Sequence[Batch]:
        """Return those of the batches that exist, in any order."""
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
        """End whatever of a batch is not over, and take no more; return how many."""
        ...

    async def batches_over(self, *, after: int = 0, limit: int) -> Sequence[int]:
        """
        Return open batches that take no more and have nothing left to do.

        They come by their keys, from the first one after `after`.
        """
        ...

    async def tell_batch(self, batch: int, *, now: Instant) -> bool:
        """Note a batch's progress, at most once a second; say whether it was."""
        ...

    async def finish_batch(
        self,
        batch: int,
        then: Callable[[Batch, Counts], Sequence[NewJob]],
        *,
        now: Instant,
    ) -> bool:
        """End a batch if it is over, with the jobs that follow; once a generation."""
        ...
