"""
Which ended jobs of a queue may be deleted, by age and by count. Pure.

Ended jobs are ordered by the time of their end and, within a millisecond, by their
number. A horizon is a position in that order: jobs up to it may be deleted.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from backburner.domain.jobs.job import Instant

Place = tuple[Instant, int]
"""The time of an end, and the job's number."""

COUNTED_AFTER: Final = timedelta(minutes=10)
"""A limit by count deletes only jobs that ended longer ago than this."""
_LAST: Final = 2**62
_MILLISECOND: Final = timedelta(milliseconds=1)


def horizon(
    *, now: Instant, age: timedelta, count: int | None, newest: Sequence[Place]
) -> Place:
    """
    Return the last position that may be deleted.

    `newest` are the positions of the latest `count` + 1 ends, newest first.
    """
    by_age = until(now, age)
    if count is None or len(newest) <= count:
        return by_age
    return max(by_age, min(newest[count], until(now, COUNTED_AFTER)))


def until(now: Instant, age: timedelta) -> Place:
    """Return the last position of at least this age."""
    return now - age // _MILLISECOND, _LAST
