"""Lists of jobs, clean-up and the store's clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

from backburner.domain.jobs.job import Instant, Job, JobState, Visibility


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Selects jobs. Unset fields do not restrict."""

    owner: Visibility | None = None
    state: JobState | None = None
    states: frozenset[JobState] = frozenset()
    """Any of these states, if not empty; replaces `state`."""
    capability: str | None = None
    queue: str | None = None
    tag: str | None = None
    metadata: Mapping[str, str] | None = None
    """Each of these names has this text, exactly, in the metadata of the job."""
    fingerprint: str | None = None
    since: Instant | None = None
    """Submitted at this time or later."""
    until: Instant | None = None
    """Submitted before this time."""
    flow: int | None = None
    batch: int | None = None
    worker: str | None = None
    """Held by this worker; a job has one only while it is `running`."""
    oldest_first: bool = False
    """Whether the oldest come first; a cursor is then the number to continue after."""


class FailureGroup(NamedTuple):
    """Dead letters with the same cause."""

    fingerprint: str
    capability: str
    code: str
    size: int
    first_at: Instant
    last_at: Instant
    sample_id: str
    """The newest of these jobs."""
    message: str = ""
    """The error message of that job."""


class Retention(NamedTuple):
    """How long a finished job is kept."""

    succeeded: timedelta = timedelta(days=7)
    failed: timedelta = timedelta(days=14)
    cancelled: timedelta = timedelta(days=7)


class MaintenanceStore(Protocol):
    """Lists of jobs, and upkeep."""

    async def read_clock(self) -> Instant:
        """Return the store's time, which all its processes use."""
        ...

    async def jobs(
        self, where: JobFilter, *, before: int | None, limit: int
    ) -> Sequence[Job]:
        """
        Return jobs, newest first, with `seq` below `before`.

        With `oldest_first`, the oldest first, with `seq` above it. Inputs and outputs
        are left out, so that a page of large jobs stays small; `find` returns them.
        """
        ...

    async def walk(
        self, where: JobFilter, *, before: int | None, limit: int, reach: int
    ) -> tuple[Sequence[Job], int | None]:
        """
        Return a page like `jobs`, but read about `reach` jobs at most.

        Also return the number from which to continue if it stopped before the page was
        full; then there may be more jobs, and the page may be empty.
        """
        ...

    async def count_within(
        self, where: JobFilter, *, most: int, reach: int
    ) -> tuple[int, bool]:
        """
        Count jobs like `count`, but read about `reach` jobs at most.

        Also return whether all matching jobs were counted.
        """
        ...

    async def count(self, where: JobFilter, *, most: int | None = None) -> int:
        """Return how many jobs match; with `most`, stop counting there."""
        ...

    async def failures(
        self, owner: Visibility, *, limit: int
    ) -> Sequence[FailureGroup]:
        """Return an owner's dead letters by fingerprint, the latest first."""
        ...

    async def depths(self) -> Sequence[tuple[str, JobState, int, Instant | None]]:
        """Count jobs per queue and live state, with the age of the oldest."""
        ...

    async def waiting(self, cap: int) -> Mapping[str, int]:
        """Count queued jobs by queue, up to `cap` each; empty queues are omitted."""
        ...

    async def dead_letters(self) -> int:
        """Count dead letters of all owners; a store may stop at 100,000."""
        ...

    async def promote(self, *, now: Instant, limit: int) -> int:
        """Queue scheduled jobs that are due; return how many."""
        ...

    async def next_due(self) -> Instant | None:
        """Return when the next scheduled job is due."""
        ...

    async def overdue(self, *, now: Instant, limit: int) -> Sequence[Job]:
        """List waiting jobs past their `start_by` or `deadline`, as `jobs` does."""
        ...

    async def prune(
        self, *, keep: Retention, now: Instant, limit: int
    ) -> Sequence[str]:
        """
        Delete finished jobs whose retention has ended, with their events.

        Return ids.
        """
        ...
