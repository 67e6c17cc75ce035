"""The model usage of jobs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from backburner.domain.costs.usage import RunUsage, Spent, Usage
from backburner.domain.jobs.job import Instant


class UsageFilter(NamedTuple):
    """Selects the model calls to sum up."""

    tenant: str
    user: str | None = None
    """`None`: all users of the tenant."""
    since: Instant | None = None
    until: Instant | None = None


class JobCost(NamedTuple):
    """The usage of a job, as far as its calls were read."""

    id: str
    capability: str
    user: str
    state: str
    spent: Spent


class CostReport(NamedTuple):
    """The cost of model calls, by several groupings."""

    total: Spent
    failed: Spent
    """The usage of failed runs, except those of deleted jobs."""
    by: Mapping[str, Sequence[tuple[str, Spent]]]
    """By capability, model and user, the most expensive first."""
    jobs: Sequence[JobCost]
    """The most expensive first."""
    since: Instant | None
    """The time of the first call."""
    is_capped: bool
    """Whether there may be older calls that were not read."""


class RecordedCall(NamedTuple):
    """A model call of a job, as it was recorded."""

    seq: int
    """Its position among all calls."""
    generation: int
    epoch: int
    """The number of the `job.started` event of its run."""
    used: Usage
    is_late: bool
    """Whether it was reported after its run had lost the job."""


class UsageStore(Protocol):
    """The model usage of jobs; kept longer than the jobs."""

    async def book(self, bookings: Sequence[RunUsage]) -> None:
        """
        Record the usage of runs, durably; entries that exist are left unchanged.

        The usage of a run that has lost its job is recorded and marked as late. For
        deleted jobs nothing is recorded.
        """
        ...

    async def spent(
        self, seqs: Sequence[int], *, with_late: bool = True
    ) -> Mapping[int, Spent]:
        """Sum up the usage of jobs; jobs without usage are omitted."""
        ...

    async def calls_of(
        self, job: int, *, after: int = 0, limit: int
    ) -> Sequence[RecordedCall]:
        """Return the calls of a job with `seq` above `after`, in order."""
        ...

    async def spent_before(self, job: int, *, generation: int, epoch: int) -> Spent:
        """Sum up a job's usage in a generation by runs before this epoch."""
        ...

    async def sums(
        self, where: UsageFilter, by: str, *, limit: int
    ) -> tuple[Spent, Sequence[tuple[str, Spent]]]:
        """
        Sum up calls in total and by tag, capability, model, user, day or minute.

        The largest sums come first; times are in order. A job with two tags counts for
        both. A store reads no more than `limit` groups into memory.
        """
        ...

    async def costs(self, where: UsageFilter, *, limit: int) -> CostReport:
        """
        Report the cost of the newest calls, with up to `limit` jobs, users and so on.

        It reads a bounded number of calls.
        """
        ...

    async def forget_usage(self, *, before: Instant, limit: int) -> int:
        """Delete calls that were made before a time; return how many."""
        ...
