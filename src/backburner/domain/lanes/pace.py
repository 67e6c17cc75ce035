"""
The rate of a lane, and how it learns the limit of a silent provider.

Calls are spaced evenly rather than sent in bursts, which suits providers that count
over a minute as well as those that fill a bucket. After a refusal the pace falls. It
rises quickly while it is far below the last known ceiling and slowly near it. Then a
higher pace is tested: twice the ceiling until the calls of a minute show that the
ceiling is too low, and faster from there. A test that fails costs one refused call.
"""

import math
from dataclasses import replace
from typing import Final

from backburner.domain.jobs.job import Instant
from backburner.domain.lanes.lane import MINUTE, SECOND, LaneState, until_room
from backburner.domain.lanes.rate_limit_headers import RateLimitInfo

FIRST_DOUBLING: Final = 5_000
"""Milliseconds of use in which the pace doubles while the limit is unknown."""
FALL: Final = 0.85
"""The share of the ceiling at which calls go on after a refusal."""
STEEP_FALL: Final = 0.7
"""The factor for the ceiling if the refusal before was only a moment ago."""
DEEPEST_FALL: Final = 0.5
"""The minimum share of a ceiling that one series of refusals leaves."""
PLATEAU: Final = 45_000
"""The minimum time for which the ceiling is kept before it is tested again …"""
PLATEAU_CALLS: Final = 22
"""… and the minimum number of calls, so that slow lanes are not tested too often."""
MOMENT: Final = 0.6
"""A refusal within this share of the plateau counts as soon after the last one."""
TRY: Final = 2.0
"""The multiple of the ceiling that a test uses …"""
DOUBLING: Final = 15_000
"""… and the time in milliseconds in which it doubles once it is proven."""
PROOF: Final = (1.05, 1.5)
"""By which factor and number a minute's calls must exceed a ceiling to disprove it."""
LONGEST_BACKOFF: Final = 8
"""The maximum multiple of the wait while refusals name no time …"""
PATIENT_AFTER: Final = 12
"""… and after how many consecutive refusals it keeps doubling, up to a minute."""
BETWEEN: Final = 0.33
"""The position of the new ceiling between the rates served and refused last."""
FASTEST_TRIAL: Final = 240.0
"""The maximum pace, in calls per minute, of a test for random refusals."""
SOME: Final = 3
"""How many calls must be served to prove random refusals."""
TRIALS: Final = 6
"""How many such tests may fail before they are stopped …"""
TRIED_FOR: Final = MINUTE
"""… for this time, in milliseconds."""
NEARLY: Final = 0.99
LONGEST_FREED: Final = 15_000
"""How long the first retry waits at most for the minute's count to fall."""
TOLD_FOR: Final = 10 * MINUTE
"""How long a limit applies that the provider reported in a response."""
TOLD_SHARE: Final = 0.98
"""The share of a reported limit that is used, as clocks differ slightly."""


def pace(state: LaneState, now: Instant) -> float:
    """Return how many calls may start per minute now."""
    allowed = _climb(state)
    reported = told_requests(state, now)
    is_known = state.is_learnt
    if reported is not None:
        allowed = min(allowed if is_known else reported, reported) * TOLD_SHARE
        is_known = True
    if state.requests is not None:
        allowed = min(allowed, state.requests) if is_known else state.requests
    return max(allowed, 1.0)


def _climb(state: LaneState) -> float:
    """Return the pace that the lane has reached since its last refusal."""
    if not state.is_learnt:
        return state.ceiling * _doubled(state.used / FIRST_DOUBLING)
    if is_level(state):
        missing = (1 - state.used / _plateau(state)) ** 3
        return max(state.ceiling, state.spared) * (1 - (1 - FALL) * missing)
    if state.proven is None:
        return state.ceiling * TRY
    return state.ceiling * TRY * _doubled((state.used - state.proven) / DOUBLING)


def is_level(state: LaneState) -> bool:
    """Return whether the lane stays below a learnt ceiling."""
    return state.is_learnt and state.used < _plateau(state)


def proved(state: LaneState) -> LaneState:
    """Record that the ceiling is too low as soon as the last minute shows it."""
    if not state.is_learnt or is_level(state) or state.proven is not None:
        return state
    share, more = PROOF
    is_passed = state.served > state.ceiling * share + more
    return replace(state, proven=state.used) if is_passed else state


def _plateau(state: LaneState) -> float:
    return max(PLATEAU, PLATEAU_CALLS * MINUTE / state.ceiling)


def _doubled(times: float) -> float:
    return float(2.0 ** min(times, 20.0))


def fallen(state: LaneState, now: Instant) -> float:
    """
    Return the new ceiling after a call was refused.

    If the provider counts over a minute, the calls served in the last minute are the
    limit itself. A provider that fills a bucket may have served more, from its reserve:
    then it refuses again soon, and the calls served in between are its rate.
    """
    served = float(max(1, state.served))
    since = now - state.refused_at
    if not state.is_learnt:
        return max(served, DEEPEST_FALL * _believed(state, now), 1.0)
    if since >= MOMENT * _plateau(state):
        return max(served, STEEP_FALL * state.ceiling, 1.0)
    last = state.refused_at // SECOND
    recent = sum(start.served for start in state.starts if start.second >= last)
    enough = 3
    is_enough = recent >= enough and since >= enough * SECOND
    rate = recent * MINUTE / since if is_enough else 0.0
    return max(min(served, state.ceiling) * STEEP_FALL, min(served, rate), 1.0)


def lowest(state: LaneState, now: Instant) -> float:
    """Return the lower bound of the ceiling for a series of refusals."""
    return max(1.0, _believed(state, now) * DEEPEST_FALL)


def _believed(state: LaneState, now: Instant) -> float:
    """Return the ceiling, or the known limit if none is learnt yet."""
    limit = least(state.requests, told_requests(state, now))
    return state.ceiling if state.is_learnt or limit is None else float(limit)


def backoff(state: LaneState, now: Instant) -> float:
    """Return the wait after a refusal that names no time."""
    gap = MINUTE / state.ceiling
    full = math.ceil(state.ceiling * NEARLY)
    freed = until_room(state, lambda s: s.served, full - 1, now)
    freed = min(freed, LONGEST_FREED)
    if state.refusals == 1:
        return max(SECOND / 2, gap, freed)
    steps = min(LONGEST_BACKOFF, 2.0 ** min(state.refusals - 1, LONGEST_BACKOFF))
    if state.refusals > PATIENT_AFTER:
        steps *= 2.0 ** min(state.refusals - PATIENT_AFTER, LONGEST_BACKOFF)
    return min(max(freed, steps * max(SECOND, gap / 2)), max(MINUTE, gap))


def spared(state: LaneState, now: Instant) -> float:
    """Return the ceiling to keep if refusals turn out to be random."""
    if not state.is_learnt or now - state.refused_at >= MOMENT * _plateau(state):
        return 0.0
    return min(state.ceiling, FASTEST_TRIAL)


def opened(state: LaneState, now: Instant) -> LaneState:
    """Resume calls after a test call was served."""
    ceiling = state.ceiling
    many = 2
    if state.refusals > many:
        served = state.served + 1.0
        ceiling = max(state.lowest, min(ceiling, served + (ceiling - served) * BETWEEN))
    state = _doubted(replace(state, ceiling=ceiling, refusals=0), now)
    state = replace(state, spared=0.0, ran=1)
    return replace(state, due_at=round(now + MINUTE / pace(state, now)))


def _doubted(state: LaneState, now: Instant) -> LaneState:
    """
    Test whether the provider refuses calls for another reason than their rate.

    Some providers refuse at random, say when to retry, and serve every retry. A lower
    pace does not help there, so the ceiling is kept and a few calls are sent at once. A
    provider that counts over a minute serves only as many calls as have left its count.
    A bucket is empty at each refusal, so it serves few of those calls.
    """
    is_odd = state.is_doubted or state.served > state.filled
    if not state.spared or not is_odd:
        return replace(state, is_doubted=False)
    trials = state.trials if now - state.tried_at < TRIED_FOR else 0
    if state.is_doubted:
        trials = max(0, trials + 2 - state.ran)
    is_doubted = trials < TRIALS
    if state.ran >= SOME:
        rate = state.ran * MINUTE / max(SECOND, state.ran_for)
        state = replace(state, ceiling=max(state.ceiling, rate))
    elif is_doubted:
        state = replace(state, ceiling=max(state.ceiling, state.spared))
    return replace(state, is_doubted=is_doubted, trials=trials, tried_at=now)


def heard(state: LaneState, hint: RateLimitInfo, now: Instant) -> LaneState:
    """Apply the limits that a provider reported."""
    reported, tokens = hint.requests, hint.tokens
    if reported is None and tokens is None:
        return state
    if reported is not None and reported != told_requests(state, now):
        used = float(PLATEAU) if state.is_learnt else 0.0
        state = replace(
            state, ceiling=float(reported), used=used, proven=None, told=reported
        )
    return replace(state, told_tokens=tokens or state.told_tokens, told_at=now)


def told_requests(state: LaneState, now: Instant) -> int | None:
    """Return the reported limit in calls per minute, unless it is too old."""
    return state.told if now - state.told_at < TOLD_FOR else None


def told_tokens(state: LaneState, now: Instant) -> int | None:
    """Return the reported limit in tokens per minute, unless it is too old."""
    return state.told_tokens if now - state.told_at < TOLD_FOR else None


def least(one: int | None, other: int | None) -> int | None:
    """Return the stricter of two limits."""
    return min((limit for limit in (one, other) if limit is not None), default=None)
