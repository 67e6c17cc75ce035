"""
Fair order within a queue and priority: start-time fair queueing.

What waits in a queue at one priority is a line; whoever has jobs in it has a share of
it. A share's `finish` is the virtual time at which all it asked for so far would be
served. A job's rank is the virtual time at which its share gets to it, and the least
rank is claimed first: shares that all wait are served in proportion to their weights,
by cost. The line's front is the highest rank that was ever claimed. A share that was
away begins there, however long it was away, and whatever old job is retried meanwhile.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from backburner.domain.jobs.job import NewJob

UNIT = 1_000
"""What a cost of 1 takes of virtual time at weight 1."""
MAX_WEIGHT = UNIT
"""So that a cost of 1 always takes some."""
MAX_COST = 2**20
"""What one job counts at most: 64 bits are enough for eight billion such jobs."""


class Share(NamedTuple):
    """Whose share of which line: that of the user, unless the job names another."""

    queue: str
    priority: int
    tenant: str
    name: str


class Place(NamedTuple):
    """What jobs of one share were given of virtual time."""

    start: int
    span: int

    @property
    def finish(self) -> int:
        """When all of it would be served."""
        return self.start + self.span


def share_of(job: NewJob) -> Share:
    """Say whose share a job takes."""
    return Share(job.queue, job.priority, job.owner.tenant, job.share or job.owner.user)


def by_share(jobs: Sequence[NewJob]) -> dict[Share, list[int]]:
    """Return which jobs take each share, as indexes."""
    shares: dict[Share, list[int]] = {}
    last, indexes = None, []
    for index, job in enumerate(jobs):
        # Mostly many of one share come together.
        named = job.queue, job.priority, job.owner, job.share
        if named != last:
            last, indexes = named, shares.setdefault(share_of(job), [])
        indexes.append(index)
    return shares


def cost(tokens: int | None) -> int:
    """Say what a job counts: its tokens, and 1 if nobody said."""
    return 1 if tokens is None else min(max(1, tokens), MAX_COST)


def costs(
    jobs: Sequence[NewJob], shares: Mapping[Share, Sequence[int]]
) -> dict[Share, int]:
    """Add up what jobs cost their shares."""
    return {
        share: sum([cost(jobs[index].tokens) for index in indexes])
        for share, indexes in shares.items()
    }


def correction(estimate: int | None, used: int, *, is_over: bool) -> int:
    """
    Say what a job's share owes more, or less, after an attempt that used tokens.

    Each attempt pays what it used; the last one gets the estimate back.
    """
    return cost(used) - cost(estimate) if is_over else cost(used)


def span(cost: int, weight: int) -> int:
    """Say how much virtual time a cost takes; a negative one gives as much back."""
    size = -(-abs(cost) * UNIT // weight)
    return size if cost > 0 else -size


def take(front: int, finish: int | None, span: int) -> Place:
    """Give a share a span of virtual time, in a line that is served at `front`."""
    return Place(front if finish is None else max(front, finish), span)


def ranks(
    jobs: Sequence[NewJob],
    shares: Mapping[Share, Sequence[int]],
    places: Mapping[Share, Place],
) -> list[int]:
    """Return each job's rank: its share's place is dealt out by cost, in order."""
    dealt = [0] * len(jobs)
    for share, indexes in shares.items():
        start, size = places[share]
        paid = [*accumulate([cost(jobs[index].tokens) for index in indexes], initial=0)]
        for index, before in zip(indexes, paid, strict=False):
            dealt[index] = start + before * size // paid[-1]
    return dealt
