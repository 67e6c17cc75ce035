"""
The rate of a lane, and how it learns the limit of a silent provider.

Calls are paced, not let go in bursts, so that a provider that counts over a minute and
one that fills a bucket are served alike. After a refusal the pace falls, climbs back
quickly while it is far below the last known ceiling and slowly near it, and then tries
whether there is more: at twice the ceiling until the minute's count shows that it holds
no longer, and faster and faster from there. A try that fails costs one refused call.
"""

import math
from dataclasses import replace
from typing import Final

from backburner.domain.jobs.job import Instant
from backburner.domain.lanes.lane import MINUTE, SECOND, LaneState, until_room
from backburner.domain.lanes.rate_limit_headers import RateLimitInfo

FIRST_DOUBLING: Final = 5_000
"""In how many milliseconds of use the pace of a lane doubles that nobody knows."""
FALL: Final = 0.85
"""The share of the ceiling at which calls go on after a refusal."""
STEEP_FALL: Final = 0.7
"""What becomes of the ceiling itself if the last refusal was only a moment ago."""
DEEPEST_FALL: Final = 0.5
"""The least that one spell of refusals leaves of a ceiling."""
PLATEAU: Final = 45_000
"""How long the ceiling is believed before it is tried again, at least …"""
PLATEAU_CALLS: Final = 22
"""… and for how many calls: a slow lane is not tried at every other one."""
MOMENT: Final = 0.6
"""A refusal within this share of the plateau is one soon after the last."""
TRY: Final = 2.0
"""How many times the ceiling is tried …"""
DOUBLING: Final = 15_000
"""… and in how many milliseconds it doubles from there, once it is proven."""
PROOF: Final = (1.05, 1.5)
"""How far a minute's calls must pass the ceiling to show that it is none any more."""
LONGEST_BACKOFF: Final = 8
"""How far the wait doubles while a lane is refused and nobody says for how long …"""
PATIENT_AFTER: Final = 12
"""… and after how many refusals in a row it doubles on, up to a minute."""
BETWEEN: Final = 0.33
"""Where the ceiling lies between what is served now and what was refused last."""
FASTEST_TRIAL: Final = 240.0
"""At how many calls a minute is tried whether refusals come by chance, at most …"""
SOME: Final = 3
"""… and how many calls must be served to show it."""
TRIALS: Final = 6
"""How often that is tried in vain before it is let be …"""
TRIED_FOR: Final = MINUTE
"""… for so long."""
NEARLY: Final = 0.99
LONGEST_FREED: Final = 15_000
"""How long the first try waits for a place of a minute's count, at most."""
TOLD_FOR: Final = 10 * MINUTE
"""How long a limit counts that the provider told with an answer."""
TOLD_SHARE: Final = 0.98
"""How much of it is used: clocks differ a little."""


def pace(state: LaneState, now: Instant) -> float:
    """Return how many calls a minute may start now."""
    allowed = _climb(state)
    told = told_requests(state, now)
    is_known = state.is_learnt
    if told is not None:
        allowed = min(allowed if is_known else told, told) * TOLD_SHARE
        is_known = True
    if state.requests is not None:
        allowed = min(allowed, state.requests) if is_known else state.requests
    return max(allowed, 1.0)


def _climb(state: LaneState) -> float:
    """Return the pace that the lane has come to since it was refused."""
    if not state.is_learnt:
        return state.ceiling * _doubled(state.used / FIRST_DOUBLING)
    if is_level(state):
        missing = (1 - state.used / _plateau(state)) ** 3
        return max(state.ceiling, state.spared) * (1 - (1 - FALL) * missing)
    if state.proven is None:
        return state.ceiling * TRY
    return state.ceiling * TRY * _doubled((state.used - state.proven) / DOUBLING)


def is_level(state: LaneState) -> bool:
    """Say whether the ceiling is believed, and not passed."""
    return state.is_learnt and state.used < _plateau(state)


def proved(state: LaneState) -> LaneState:
    """Note that the ceiling is higher, as soon as the last minute shows it."""
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
    Return what the ceiling must be, now that a call was refused.

    What was served in the last minute is the limit itself if the provider counts over
    a minute. One that fills a bucket may have served more, from what it held: then it
    refuses again at once, and what was served in between is its rate.
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
    """Return what a spell of refusals that begins now leaves of the ceiling."""
    return max(1.0, _believed(state, now) * DEEPEST_FALL)


def _believed(state: LaneState, now: Instant) -> float:
    """Return the ceiling, also of a lane that has learnt none yet."""
    said = least(state.requests, told_requests(state, now))
    return state.ceiling if state.is_learnt or said is None else float(said)


def backoff(state: LaneState, now: Instant) -> float:
    """Return how long to wait if nobody says: at least until a place is free again."""
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
    """Return the ceiling that is left to a lane whose refusals may be by chance."""
    if not state.is_learnt or now - state.refused_at >= MOMENT * _plateau(state):
        return 0.0
    return min(state.ceiling, FASTEST_TRIAL)


def opened(state: LaneState, now: Instant) -> LaneState:
    """Go on after a call that tried was served."""
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
    Try whether the pace is what a provider refuses calls for.

    Some refuse by chance, say when to come again, and serve whoever does. Going slower
    helps nobody there, so the ceiling stays and a few calls go at once. One who counts
    over the minute serves no more than were over when it refused. A bucket is empty at
    each refusal: what was served in between is its rate, and of those few next to none.
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
    """Believe what the provider says of its limits."""
    told, tokens = hint.requests, hint.tokens
    if told is None and tokens is None:
        return state
    if told is not None and told != told_requests(state, now):
        used = float(PLATEAU) if state.is_learnt else 0.0
        state = replace(state, ceiling=float(told), used=used, proven=None, told=told)
    return replace(state, told_tokens=tokens or state.told_tokens, told_at=now)


def told_requests(state: LaneState, now: Instant) -> int | None:
    """Return how many calls a minute the provider said, if it was not long ago."""
    return state.told if now - state.told_at < TOLD_FOR else None


def told_tokens(state: LaneState, now: Instant) -> int | None:
    """Return how many tokens a minute the provider said, if it was not long ago."""
    return state.told_tokens if now - state.told_at < TOLD_FOR else None


def least(one: int | None, other: int | None) -> int | None:
    """Return the stricter of two limits."""
    return min((limit for limit in (one, other) if limit is not None), default=None)
