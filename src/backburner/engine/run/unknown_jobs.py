"""Decides how long jobs wait whose capability this worker does not have."""

from datetime import timedelta
from typing import Final

from backburner.domain.jobs.job import Claim
from backburner.ports.clock import Clock

SHORTEST: Final = timedelta(seconds=5)
LONGEST: Final = timedelta(minutes=1)
GROWTH: Final = 100
"""A job waits at least this share of its waits so far: each takes three events."""
SPACING: Final = timedelta(milliseconds=50)
"""The time between two jobs that this worker returns, when they are due again."""
OFFERS: Final = 24
"""How often a job is offered, at least, before the limit on such waits ends it."""
MS: Final = timedelta(milliseconds=1)


class UnknownJobs:
    """
    Lets few unknown jobs return soon, and spreads many of them.

    A returned job keeps its place in its queue, so it is claimed before newer jobs that
    this worker knows. Thousands that all return after the shortest wait would use up
    what the worker can claim: they are due one by one, evenly over the longest wait.
    None waits longer, as a worker that has the capability may be idle.
    """

    def __init__(self, clock: Clock, limit: timedelta) -> None:
        """`limit` is the maximum total of a job's waits that use up no attempt."""
        self._clock = clock
        self._longest = min(limit // OFFERS, LONGEST)
        self._last = clock.monotonic()
        """When the job is due that was returned last."""

    def wait(self, claim: Claim) -> timedelta:
        """Return how long a job waits; call it once for each job that is returned."""
        now = self._clock.monotonic()
        soonest = now + SHORTEST // MS
        due = max(soonest, self._last + SPACING // MS)
        self._last = due if due <= now + self._longest // MS else soonest
        waited = claim.throttled * MS
        return max((self._last - now) * MS, min(waited / GROWTH, LONGEST))
