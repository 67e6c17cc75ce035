"""
Which ended jobs of a queue may be deleted, by age and by count. Pure.

Ended jobs are in the order of their ends; jobs that ended in the same millisecond are
in the order of their numbers. A horizon is a place in that order: what is there or
before it may go.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from backburner.domain.jobs.job import Instant

Place = tuple[Instant, int]
"""When something ended, and its number."""

COUNTED_AFTER: Final = timedelta(minutes=10)
"""A count deletes nothing that ended later than this: its readers may still come."""
_LAST: Final = 2**62
_MILLISECOND: Final = timedelta(milliseconds=1)


def horizon(
    *, now: Instant, age: timedelta, count: int | None, newest: Sequence[Place]
) -> Place:
    """
    Return the last place that may go.

    `newest` are the latest ends, the last one first, one more than `count`.
    """
    by_age = until(now, age)
    if count is None or len(newest) <= count:
        return by_age
    return max(by_age, min(newest[count], until(now, COUNTED_AFTER)))


def until(now: Instant, age: timedelta) -> Place:
    """Return the last place that is as old as this."""
    return now - age // _MILLISECOND, _LAST
