"""Recent activity, and the impact of failures."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from backburner.domain.jobs.job import Instant, Visibility


class Minute(NamedTuple):
    """The numbers of jobs that arrived and ended in one minute."""

    at: Instant
    submitted: int
    succeeded: int
    failed: int
    retried: int
    """Attempts that failed and are retried."""


class Activity(NamedTuple):
    """The activity since a time; minutes without any are left out."""

    since: Instant
    is_capped: bool
    """Whether `since` is later than requested."""
    minutes: Sequence[Minute]


class Moved(NamedTuple):
    """How many jobs of a queue arrived and ended."""

    submitted: int
    ended: int


class Impact(NamedTuple):
    """The impact of dead letters with one cause, as far as they were read."""

    jobs: int
    users: int
    cost: int
    """The cost of their model calls, where known, in micro-dollars."""


class ActivityStore(Protocol):
    """Figures for operators; each reads a bounded number of rows."""

    async def activity(self, owner: Visibility, *, since: Instant) -> Activity:
        """Count an owner's jobs by minute, from a bounded number of newest events."""
        ...

    async def throughput(self, *, since: Instant) -> Mapping[str, Moved]:
        """
        Count everyone's jobs that arrived and ended since a time, by queue.

        If there are too many events to read, the counts are estimates for the whole
        time, from some of its events. Queues without such jobs are left out.
        """
        ...

    async def impacts(self, owner: Visibility) -> Mapping[str, Impact]:
        """Return the impact of an owner's newest dead letters, by fingerprint."""
        ...
