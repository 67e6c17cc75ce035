"""What happened lately, and whom failures hit."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from backburner.domain.jobs.job import Instant, Visibility


class Minute(NamedTuple):
    """How many jobs came and ended in a minute."""

    at: Instant
    submitted: int
    succeeded: int
    failed: int
    retried: int
    """Attempts that failed and are followed by another."""


class Activity(NamedTuple):
    """What happened since a time; minutes without anything are left out."""

    since: Instant
    is_capped: bool
    """Whether `since` is later than was asked for."""
    minutes: Sequence[Minute]


class Impact(NamedTuple):
    """Whom dead letters with one cause hit, as far as they were looked at."""

    jobs: int
    users: int
    cost: int
    """Of their calls of models whose cost is known, in micro-dollars."""


class ActivityStore(Protocol):
    """Figures for people who watch; each is bounded, however many jobs there are."""

    async def activity(self, owner: Visibility, *, since: Instant) -> Activity:
        """Count an owner's jobs by minute, from a bounded number of newest events."""
        ...

    async def impacts(self, owner: Visibility) -> Mapping[str, Impact]:
        """Return whom an owner's newest dead letters hit, by fingerprint."""
        ...
