"""
Estimates when a job would start and end, from the history of others.

The queue is played through, many times: what runs goes on for as long as jobs that ran
as long did, each job ahead takes what one of the past took, and this one begins when a
slot is free. Half of the plays end before the p50; before the p90 a few more than nine
in ten do, for what no play knows.

It is cautious where little is known. To the runs of the past one is added that took
twice as long as the longest, which matters while there are few: under fifteen of them
it is the p90. And the pace of the past is taken for uncertain by what so many runs can
tell, but never for surer than `SUREST` of them could.

It cannot know what will be submitted with a higher priority, or that workers will go.
"""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import ceil, sqrt
from statistics import NormalDist, fmean, pstdev
from typing import Final, NamedTuple

PLAYS: Final = 100
PLAYED: Final = 60
"""How many jobs ahead are played one by one; those before them as a sum."""
SUREST: Final = 10
SURE: Final = 0.94
"""The share of plays that is promised to nine in ten jobs: plays do not know it all."""
MOST_SLOTS: Final = 200
FEWEST_WAITS: Final = 10
_PRIME: Final = 2_147_483_647
_STEP: Final = 48_271
_GOLDEN: Final = 0.618_033_988_749_895


class Past(NamedTuple):
    """A job that ran, in milliseconds."""

    capability: str
    queue: str
    waited: int
    """From being ready to the start of its last run."""
    ran: int
    """How long its last run had a slot."""
    took: int
    """From its first start, or before it, to its end."""


class Prospect(NamedTuple):
    """How a queue stands for a job that comes last in its priority."""

    ahead: int
    """How many queued jobs are served before it."""
    ages: Sequence[int]
    """How long each running job of the queue has run, in milliseconds."""
    slots: int
    """How many jobs of the queue may run at once."""
    past: Sequence[Past]
    pace: float = 0.0
    """The least time between two starts that a rate allows, in milliseconds."""
    not_before: int = 0
    """When it may start at the earliest, in milliseconds from now."""


class Span(NamedTuple):
    """Something between now and then, in milliseconds."""

    p50: int
    p90: int


class Forecast(NamedTuple):
    """When a job will start and end, from now."""

    start: Span | None
    """`None`: nobody can tell, for nothing ran yet or nobody works."""
    end: Span | None
    samples: int
    """How many runs of the capability it rests on."""


def forecast(prospect: Prospect, capability: str, queue: str) -> Forecast:
    """Play the queue through and say when a job of the capability starts and ends."""
    mine = [p.took for p in prospect.past if p.capability == capability]
    others = [p.ran for p in prospect.past if p.queue == queue]
    busy = prospect.ahead + len(prospect.ages) >= prospect.slots
    if prospect.slots < 1 or (busy and not others):
        return Forecast(None, None, len(mine))
    waits = sorted(p.waited for p in prospect.past if p.queue == queue)
    latency = waits[len(waits) // 10] if len(waits) >= FEWEST_WAITS else 0
    # A slot that is free has to be given to the next: that takes a moment, too.
    moment = min(latency, ceil(fmean(others) / 10)) if others else 0
    slotted = _Runs([ran + moment for ran in others])
    plays = list(_plays(_smaller(prospect), slotted, _Runs(mine)))
    start = _span([latency + begun for begun, _ in plays])
    end = _span([latency + ended for _, ended in plays]) if mine else None
    return Forecast(start, end, len(mine))


def _smaller(prospect: Prospect) -> Prospect:
    """Let few slots stand for very many: a share of them has a share of the work."""
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
    """Return the value that this share of them does not exceed."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]


def _span(times: Sequence[float]) -> Span:
    whole = [ceil(time) for time in times]
    return Span(quantile(whole, 0.5), quantile(whole, SURE))


class _Runs:
    """What runs of the past took, and one that took twice as long as the longest."""

    def __init__(self, past: Sequence[int]) -> None:
        self._sorted = sorted(past) or [0]
        self._sorted.append(2 * self._sorted[-1])
        self.mean = fmean(self._sorted)
        self.spread = pstdev(self._sorted)
        self.doubt = self.spread / sqrt(min(len(self._sorted), SUREST))
        """How far the mean may be from the truth."""

    def at(self, share: float) -> int:
        return self._sorted[int(share * len(self._sorted))]

    def draw(self, dice: Iterator[float]) -> int:
        return self.at(next(dice))

    def rest(self, age: int, dice: Iterator[float]) -> int:
        """Draw how much longer a run takes that has gone on for so long."""
        first = bisect_right(self._sorted, age)
        left = len(self._sorted) - first
        if not left:
            return age
        return self._sorted[first + int(next(dice) * left)] - age


def _plays(
    prospect: Prospect, others: _Runs, mine: _Runs
) -> Iterator[tuple[float, float]]:
    """Yield when the job starts and ends, play by play."""
    ahead = min(prospect.ahead, PLAYED)
    before = prospect.ahead - ahead
    normal = NormalDist()
    for play in range(PLAYS):
        dice = _dice(play)
        # Every play believes in another pace of the past.
        doubt = normal.inv_cdf((play + 0.5) / PLAYS) * others.doubt
        pace = max(0.0, 1 + doubt / others.mean) if others.mean else 1.0
        chance = normal.inv_cdf(min(max(next(dice), 0.001), 0.999))
        work = before * others.mean + chance * others.spread * sqrt(before)
        each = max(0.0, work * pace / prospect.slots)
        free = [each + others.rest(age, dice) for age in prospect.ages]
        # More may run than there are slots, when slots have become fewer.
        free += [each] * (prospect.slots - len(free))
        heapq.heapify(free)
        for _ in range(len(free) - prospect.slots):
            heapq.heappop(free)
        for _ in range(ahead):
            heapq.heapreplace(free, free[0] + pace * others.draw(dice))
        paced = prospect.ahead * prospect.pace
        start = max(free[0], paced, prospect.not_before)
        # In even steps over all plays, not by chance: they are few.
        yield start, start + mine.at((play * _GOLDEN + 0.5) % 1)


def _dice(seed: int) -> Iterator[float]:
    """Fall the same way for the same seed: a quote can be had twice."""
    state = (seed + 1) * 16_807 * _STEP % _PRIME
    for _ in range(3):
        state = state * _STEP % _PRIME
    while True:
        state = state * _STEP % _PRIME
        yield state / _PRIME
