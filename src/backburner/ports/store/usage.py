"""What jobs used of models."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from backburner.domain.costs.usage import Booking, Spent
from backburner.domain.jobs.job import Instant


class UsageFilter(NamedTuple):
    """Whose calls of models to add up, and of when."""

    tenant: str
    user: str | None = None
    """`None`: of all users of the tenant."""
    since: Instant | None = None
    until: Instant | None = None


class UsageStore(Protocol):
    """What jobs used of models; kept for longer than the jobs are."""

    async def book(self, bookings: Sequence[Booking]) -> None:
        """
        Note what runs have used so far, durable; what was noted before is left.

        It is noted for a run that has lost its job, too, and marked as late. Of jobs
        that are gone nothing is.
        """
        ...

    async def spent(
        self, seqs: Sequence[int], *, with_late: bool = True
    ) -> Mapping[int, Spent]:
        """Add up what jobs used; those that used nothing are left out."""
        ...

    async def spent_before(self, job: int, *, generation: int, epoch: int) -> Spent:
        """Add up what a job used in a generation, by runs before that of the epoch."""
        ...

    async def sums(
        self, where: UsageFilter, by: str, *, limit: int
    ) -> tuple[Spent, Sequence[tuple[str, Spent]]]:
        """
        Add up calls: all, and by tag, capability, model, user or day.

        The largest come first, days in their order. A job with two tags is in both.
        """
        ...

    async def forget_usage(self, *, before: Instant, limit: int) -> int:
        """Delete calls that were made before a time; return how many."""
        ...
