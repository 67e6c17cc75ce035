"""
Fair order within a queue and priority: start-time fair queueing.

The jobs that wait in a queue at one priority form a line, and each user or named share
with jobs in it has a share. A share's `finish` is the virtual time at which all of its
jobs so far would be served. A job's rank is its own virtual time, and the lowest rank
is claimed first: shares that are all waiting are served in proportion to their weights,
by cost. The line's front is the highest rank that was ever claimed. A share that was
idle starts there, however long it was idle and whichever old jobs are retried.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from backburner.domain.jobs.job import NewJob

UNIT = 1_000
"""The virtual time that a cost of 1 takes at weight 1."""
MAX_WEIGHT = UNIT
"""Weights are limited so that a cost of 1 always takes some virtual time."""
MAX_COST = 2**20
"""The maximum cost of a job: 64 bits suffice for eight billion such jobs."""


class Share(NamedTuple):
    """A share of a line: that of the user, unless the job names another."""

    queue: str
    priority: int
    tenant: str
    name: str


class Place(NamedTuple):
    """The virtual time that is assigned to jobs of one share."""

    start: int
    span: int

    @property
    def finish(self) -> int:
        """The virtual time at which all of it would be served."""
        return self.start + self.span


def share_of(job: NewJob) -> Share:
    """Return the share that a job belongs to."""
    return Share(job.queue, job.priority, job.owner.tenant, job.share or job.owner.user)


def by_share(jobs: Sequence[NewJob]) -> dict[Share, list[int]]:
    """Return the indexes of the jobs of each share."""
    shares: dict[Share, list[int]] = {}
    last, indexes = None, []
    for index, job in enumerate(jobs):
        # Consecutive jobs usually belong to the same share.
        named = job.queue, job.priority, job.owner, job.share
        if named != last:
            last, indexes = named, shares.setdefault(share_of(job), [])
        indexes.append(index)
    return shares


def cost(tokens: int | None) -> int:
    """Return the cost of a job: its expected tokens, or 1 if unknown."""
    return 1 if tokens is None else min(max(1, tokens), MAX_COST)


def costs(
    jobs: Sequence[NewJob], shares: Mapping[Share, Sequence[int]]
) -> dict[Share, int]:
    """Return the total cost of the jobs of each share."""
    return {
        share: sum([cost(jobs[index].tokens) for index in indexes])
        for share, indexes in shares.items()
    }


def correction(estimate: int | None, used: int, *, is_over: bool) -> int:
    """
    Return the correction of a share's cost after an attempt that used tokens.

    Each attempt adds the tokens it used; the last one also subtracts the estimate.
    """
    return cost(used) - cost(estimate) if is_over else cost(used)


def span(cost: int, weight: int) -> int:
    """Return the virtual time that a cost takes; a negative cost gives it back."""
    size = -(-abs(cost) * UNIT // weight)
    return size if cost > 0 else -size


def take(front: int, finish: int | None, span: int) -> Place:
    """Assign a span of virtual time to a share of a line that is served at `front`."""
    return Place(front if finish is None else max(front, finish), span)


def ranks(
    jobs: Sequence[NewJob],
    shares: Mapping[Share, Sequence[int]],
    places: Mapping[Share, Place],
) -> list[int]:
    """Return each job's rank: its share's span is divided by cost, in order."""
    ranked = [0] * len(jobs)
    for share, indexes in shares.items():
        start, size = places[share]
        paid = [*accumulate([cost(jobs[index].tokens) for index in indexes], initial=0)]
        for index, before in zip(indexes, paid, strict=False):
            ranked[index] = start + before * size // paid[-1]
    return ranked
