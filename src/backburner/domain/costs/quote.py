"""
Estimates when a job will start and end, from the history of other jobs.

The queue is simulated many times: a running job continues for as long as past jobs that
had run as long, each job ahead takes the time of a random past job, and the new job
starts when a slot is free. The p50 is the median of the simulations. The p90 is a
slightly higher quantile than 0.9, to allow for what the simulation leaves out.

The estimate is cautious if the history is short. One more run is added to the past
ones, twice as long as the longest: with fewer than fifteen runs it determines the p90.
The mean duration is varied by its standard error, which is computed from at most
`SUREST` runs.

It does not foresee later jobs of a higher priority, or workers that stop.
"""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import ceil, sqrt
from statistics import NormalDist, fmean, pstdev
from typing import Final, NamedTuple

PLAYS: Final = 100
PLAYED: Final = 60
"""How many jobs ahead are simulated one by one; the others are a sum."""
SUREST: Final = 10
SURE: Final = 0.94
"""The quantile reported as p90: above 0.9, as the simulation leaves things out."""
MOST_SLOTS: Final = 200
FEWEST_WAITS: Final = 10
_PRIME: Final = 2_147_483_647
_STEP: Final = 48_271
_GOLDEN: Final = 0.618_033_988_749_895


class Past(NamedTuple):
    """A job that ran; times are in milliseconds."""

    capability: str
    queue: str
    waited: int
    """From the time it was ready to the start of its last run."""
    ran: int
    """How long its last run occupied a slot."""
    took: int
    """From the start of its first run, or earlier, to its end."""


class Prospect(NamedTuple):
    """The state of a queue for a job that comes last within its priority."""

    ahead: int
    """How many queued jobs are served before it."""
    ages: Sequence[int]
    """How long each running job of the queue has run, in milliseconds."""
    slots: int
    """How many jobs of the queue may run at once."""
    past: Sequence[Past]
    pace: float = 0.0
    """The minimum time between two starts by the queue's rate, in milliseconds."""
    not_before: int = 0
    """The earliest possible start, in milliseconds from now."""


class Span(NamedTuple):
    """A time from now, in milliseconds."""

    p50: int
    p90: int


class Forecast(NamedTuple):
    """When a job will start and end, from now."""

    start: Span | None
    """`None` if unknown: nothing has run yet, or no worker is available."""
    end: Span | None
    samples: int
    """How many runs of the capability the estimate is based on."""


def forecast(prospect: Prospect, capability: str, queue: str) -> Forecast:
    """Simulate the queue; estimate when a job of the capability starts and ends."""
    mine = [p.took for p in prospect.past if p.capability == capability]
    others = [p.ran for p in prospect.past if p.queue == queue]
    busy = prospect.ahead + len(prospect.ages) >= prospect.slots
    if prospect.slots < 1 or (busy and not others):
        return Forecast(None, None, len(mine))
    waits = sorted(p.waited for p in prospect.past if p.queue == queue)
    latency = waits[len(waits) // 10] if len(waits) >= FEWEST_WAITS else 0
    # Assigning a free slot to the next job takes a moment, too.
    moment = min(latency, ceil(fmean(others) / 10)) if others else 0
    slotted = _Runs([ran + moment for ran in others])
    plays = list(_plays(_smaller(prospect), slotted, _Runs(mine)))
    start = _span([latency + begun for begun, _ in plays])
    end = _span([latency + ended for _, ended in plays]) if mine else None
    return Forecast(start, end, len(mine))


def _smaller(prospect: Prospect) -> Prospect:
    """Scale a queue with very many slots down to `MOST_SLOTS` slots."""
    if prospect.slots <= MOST_SLOTS:
        return prospect
    share = MOST_SLOTS / prospect.slots
    return prospect._replace(
        slots=MOST_SLOTS,
        ahead=ceil(prospect.ahead * share),
        ages=prospect.ages[: ceil(len(prospect.ages) * share)],
        pace=prospect.pace / share,
    )


def quantile(values: Sequence[int], share: float) -> int:
    """Return the value that this share of the values does not exceed."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]


def _span(times: Sequence[float]) -> Span:
    whole = [ceil(time) for time in times]
    return Span(quantile(whole, 0.5), quantile(whole, SURE))


class _Runs:
    """Durations of past runs, and one that is twice as long as the longest."""

    def __init__(self, past: Sequence[int]) -> None:
        self._sorted = sorted(past) or [0]
        self._sorted.append(2 * self._sorted[-1])
        self.mean = fmean(self._sorted)
        self.spread = pstdev(self._sorted)
        self.doubt = self.spread / sqrt(min(len(self._sorted), SUREST))
        """The standard error of the mean."""

    def at(self, share: float) -> int:
        return self._sorted[int(share * len(self._sorted))]

    def draw(self, dice: Iterator[float]) -> int:
        return self.at(next(dice))

    def rest(self, age: int, dice: Iterator[float]) -> int:
        """Draw the remaining time of a run that has gone on for `age`."""
        first = bisect_right(self._sorted, age)
        left = len(self._sorted) - first
        if not left:
            return age
        return self._sorted[first + int(next(dice) * left)] - age


def _plays(
    prospect: Prospect, others: _Runs, mine: _Runs
) -> Iterator[tuple[float, float]]:
    """Yield the start and the end of the job in each simulation."""
    ahead = min(prospect.ahead, PLAYED)
    before = prospect.ahead - ahead
    normal = NormalDist()
    for play in range(PLAYS):
        dice = _dice(play)
        # Each simulation assumes another mean duration.
        doubt = normal.inv_cdf((play + 0.5) / PLAYS) * others.doubt
        pace = max(0.0, 1 + doubt / others.mean) if others.mean else 1.0
        chance = normal.inv_cdf(min(max(next(dice), 0.001), 0.999))
        work = before * others.mean + chance * others.spread * sqrt(before)
        each = max(0.0, work * pace / prospect.slots)
        free = [each + others.rest(age, dice) for age in prospect.ages]
        # More jobs than slots may be running if the number of slots was reduced.
        free += [each] * (prospect.slots - len(free))
        heapq.heapify(free)
        for _ in range(len(free) - prospect.slots):
            heapq.heappop(free)
        for _ in range(ahead):
            heapq.heapreplace(free, free[0] + pace * others.draw(dice))
        paced = prospect.ahead * prospect.pace
        start = max(free[0], paced, prospect.not_before)
        # Evenly spaced over all simulations rather than random: there are few.
        yield start, start + mine.at((play * _GOLDEN + 0.5) % 1)


def _dice(seed: int) -> Iterator[float]:
    """Yield random numbers; the same seed repeats them, so quotes are reproducible."""
    state = (seed + 1) * 16_807 * _STEP % _PRIME
    for _ in range(3):
        state = state * _STEP % _PRIME
    while True:
        state = state * _STEP % _PRIME
        yield state / _PRIME
