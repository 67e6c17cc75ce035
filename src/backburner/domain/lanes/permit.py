"""
Decides whether a caller may call a provider now, and otherwise when to ask again.

Nothing here waits: `take` returns a permit, or the time after which to ask again.
"""

import math
from dataclasses import replace
from typing import Final, NamedTuple

from backburner.domain.jobs.job import Instant
from backburner.domain.lanes import pace as pacing
from backburner.domain.lanes.lane import (
    MINUTE,
    SECOND,
    LaneState,
    Starts,
    added,
    present,
    until_room,
)
from backburner.domain.lanes.pace import pace
from backburner.domain.lanes.rate_limit_headers import LONGEST_WAIT, RateLimitInfo

FIRST_BURST: Final = 10
"""How many calls may start at once if the limit is unknown …"""
BURST: Final = 4
"""… and if the ceiling is being tested, to see how many are served."""
SLACK: Final = 1_000
"""How many milliseconds behind its pace a lane may catch up at once."""
HEAD: Final = 3
"""How many turns are assigned in advance."""
AGAIN: Final = 0.1
"""What a repeated request adds to the estimated queue, in case it was forgotten."""
FORGOTTEN: Final = 15 * MINUTE
"""The half-life of the estimated queue, in milliseconds."""


class PermitRequest(NamedTuple):
    """A request for a permit."""

    id: str
    """The id of the permit, if it is granted."""
    tokens: int = 0
    waited: int = 0
    """For how many milliseconds the job has waited in total: the longest goes first."""
    roll: float = 0.5
    """A random number from 0 to 1 that spreads the times at which callers ask again."""
    goes_first: bool = False
    """Whether the caller waits in a slot after it has paid for calls: it goes first."""


class Permit(NamedTuple):
    """Permission to make one call."""

    id: str
    at: Instant
    is_probe: bool = False


class Wait(NamedTuple):
    """The time after which to ask again."""

    span: int
    """In milliseconds, as the caller's clock may differ from the store's."""


class Held(NamedTuple):
    """The permits in use by live workers."""

    calls: int = 0
    has_probe: bool = False


def take(
    state: LaneState, ask: PermitRequest, *, held: Held, now: Instant
) -> tuple[LaneState, Permit | Wait]:
    """Grant a permit, or return when to ask again."""
    state = present(state, now)
    gap = MINUTE / pace(state, now)
    wait = _parked(state, held, now) or _wait(state, ask, held, gap, now)
    if wait > 0:
        return _put_off(state, ask, wait, gap, now, is_new=ask.waited == 0)
    return _let_go(state, ask, gap, now)


def take_within(
    state: LaneState,
    whole: LaneState,
    ask: PermitRequest,
    *,
    held: Held,
    all_held: Held,
    now: Instant,
) -> tuple[LaneState, LaneState, Permit | Wait]:
    """
    Grant a permit from a lane that belongs to a lane for all credentials of a model.

    `whole` is the lane of all credentials. Only its declared limits apply: providers
    limit and refuse each credential on its own.
    """
    whole = present(whole, now)
    gap = MINUTE / whole.requests if whole.requests else 0.0
    wait = max(_limits(whole, ask, all_held, now))
    if whole.requests:
        wait = max(wait, whole.due_at - max(gap, SLACK) - now)
    if wait > 0:
        gap = gap or float(whole.spacing) or MINUTE / pace(whole, now)
        is_new = ask.waited == 0
        whole, later = _put_off(whole, ask, wait, gap, now, is_new=is_new)
        return state, whole, later
    state, answer = take(state, ask, held=held, now=now)
    if isinstance(answer, Permit):
        whole = _started(whole, ask, gap, now)
    return state, whole, answer


def served_within(whole: LaneState, permit: Permit, *, now: Instant) -> LaneState:
    """Record the duration of a call in the lane for all credentials."""
    return replace(whole, took=_took(whole, permit, now))


def give(
    state: LaneState, permit: Permit, hint: RateLimitInfo | None, *, now: Instant
) -> LaneState:
    """Return a permit with the provider's response; `None` if there was none."""
    state = present(state, now)
    is_probe = state.probe == permit.id
    if is_probe:
        state = replace(state, probe=None)
    if hint is None:
        return state
    if hint.is_refused:
        return _refuse(
            pacing.heard(state, hint, now), permit, hint, now, is_probe=is_probe
        )
    state = pacing.heard(replace(state, took=_took(state, permit, now)), hint, now)
    if hint.wait is not None:
        parked = max(state.parked_until, now + min(hint.wait, LONGEST_WAIT))
        state = replace(state, parked_until=parked)
    return pacing.opened(state, now) if is_probe else state


def _took(state: LaneState, permit: Permit, now: Instant) -> float:
    took = float(max(0, now - permit.at))
    return took if state.took == 0 else 0.8 * state.took + 0.2 * took


def come_again(
    state: LaneState, ask: PermitRequest, *, now: Instant
) -> tuple[LaneState, Wait]:
    """Return when a caller that was refused should ask again."""
    wait = max(0, state.parked_until - now)
    gap = MINUTE / pace(state, now)
    return _put_off(state, ask, wait, gap, now, is_new=True)


class Forecast(NamedTuple):
    """The calls that wait for a lane, and how long they will take in total."""

    waiting: int
    """An estimate: waiting callers are not listed anywhere."""
    span: int
    """In milliseconds, at the current pace."""


def forecast(state: LaneState, *, held: Held, now: Instant) -> Forecast:
    """Return how many calls are waiting, and when the last of them can start."""
    state = present(state, now)
    waiting = round(_line(state, now))
    if not waiting:
        return Forecast(0, 0)
    gap = MINUTE / pace(state, now)
    if state.at_once is not None:
        gap = max(gap, state.took / state.at_once)
    first = _parked(state, held, now) or _wait(state, PermitRequest(""), held, gap, now)
    return Forecast(waiting, round(max(0.0, first) + (waiting - 1) * gap))


def is_parked(state: LaneState, now: Instant) -> bool:
    """Return whether the lane is closed, or open for one test call only."""
    return state.refusals > 0 or present(state, now).parked_until > now


def _parked(state: LaneState, held: Held, now: Instant) -> float:
    if state.parked_until > now:
        return state.parked_until - now
    if state.refusals and state.probe is not None and held.has_probe:
        return max(SECOND, state.took)
    return 0.0


def _wait(
    state: LaneState, ask: PermitRequest, held: Held, gap: float, now: Instant
) -> float:
    """Return how long no call may start, by any known or learnt limit."""
    waits = _limits(state, ask, held, now)
    if not state.refusals:
        waits.append(state.due_at - _slack(state, gap, now) - now)
    if pacing.is_level(state) and not state.is_doubted and not state.refusals:
        most = max(1, math.floor(state.ceiling))
        waits.append(until_room(state, lambda s: s.served, most - 1, now))
    return max(waits)


def _limits(
    state: LaneState, ask: PermitRequest, held: Held, now: Instant
) -> list[float]:
    """Return how long no call may start, by each known limit."""
    waits = [0.0]
    if state.at_once is not None and held.calls >= state.at_once:
        waits.append(max(50.0, state.took / state.at_once))
    if state.spacing:
        waits.append(state.started_at + state.spacing - now)
    if state.requests is not None:
        waits.append(until_room(state, lambda s: s.calls, state.requests - 1, now))
    tokens = pacing.least(state.tokens, pacing.told_tokens(state, now))
    if tokens is not None and ask.tokens:
        left = max(0, tokens - ask.tokens)
        waits.append(until_room(state, lambda s: s.tokens, left, now))
    return waits


def _slack(state: LaneState, gap: float, now: Instant) -> float:
    """Return how far the lane may run ahead: with an unknown limit, a few calls."""
    is_known = state.is_learnt or state.requests or pacing.told_requests(state, now)
    if not is_known:
        return FIRST_BURST * gap
    return max(BURST * gap if state.is_doubted else gap, SLACK)


def _let_go(
    state: LaneState, ask: PermitRequest, gap: float, now: Instant
) -> tuple[LaneState, Permit]:
    is_probe = state.refusals > 0
    used = state.used
    if not is_probe:
        used += min(now - state.started_at, 2 * gap)
    state = replace(
        _started(state, ask, gap, now),
        used=used,
        ran=state.ran + (not is_probe),
        probe=ask.id if is_probe else None,
    )
    return pacing.proved(state), Permit(ask.id, now, is_probe)


def _started(
    state: LaneState, ask: PermitRequest, gap: float, now: Instant
) -> LaneState:
    """Count a call that starts now."""
    return replace(
        state,
        started_at=now,
        due_at=round(max(state.due_at, now) + gap),
        starts=tuple(added(state.starts, Starts(now // SECOND, 1, 0, ask.tokens))),
        line=max(0.0, _line(state, now) - (1.0 if ask.waited else 0.0)),
        lined_at=now,
    )


def _put_off(
    state: LaneState,
    ask: PermitRequest,
    wait: float,
    gap: float,
    now: Instant,
    *,
    is_new: bool,
) -> tuple[LaneState, Wait]:
    """
    Return when to ask again: spread over the time in which the lane can serve all.

    The next few turns are assigned to the callers that ask. Callers at the end of the
    queue ask again after half of their wait, so that a rising pace finds callers. A
    caller that has waited for the length of the queue gets a turn soon.
    """
    if state.at_once is not None:
        gap = max(gap, state.took / state.at_once)
    line = _line(state, now) + (1.0 if is_new else AGAIN)
    whole = line * gap
    waited = math.inf if ask.goes_first else ask.waited
    overdue = max(1.0, waited / whole)
    spread = max(0.0, whole - waited) / 2
    spread += ask.roll * (whole / 4 / overdue**2 + gap / 2)
    span = min(wait + spread, LONGEST_WAIT)
    turn = max(wait, state.awaited_at + gap - now)
    if turn <= wait + max(HEAD * gap, SLACK):
        span = min(turn, LONGEST_WAIT)
        state = replace(state, awaited_at=math.ceil(now + turn))
    return replace(state, line=line, lined_at=now), Wait(math.ceil(span))


def _line(state: LaneState, now: Instant) -> float:
    """Return the estimated number of waiting callers, which decays with time."""
    return state.line * float(0.5 ** ((now - state.lined_at) / FORGOTTEN))


def _refuse(
    state: LaneState,
    permit: Permit,
    hint: RateLimitInfo,
    now: Instant,
    *,
    is_probe: bool,
) -> LaneState:
    state = replace(state, starts=tuple(_refused(state.starts, permit)))
    if not is_probe:
        # It was counted as served until now.
        ran, filled = max(0, state.ran - 1), max(0, state.filled - 1)
        state = replace(state, ran=ran, filled=filled)
    if is_probe:
        ceiling = max(state.lowest, min(state.ceiling, state.served))
        refusals = state.refusals + 1
    elif permit.at <= state.refused_at or state.refusals:
        # It started before the first refusal: nothing new is learnt.
        return _park(state, hint, now, state.parked_until - now)
    else:
        ceiling, refusals = pacing.fallen(state, now), 1
        lowest = min(ceiling, pacing.lowest(state, now))
        spared = 0.0 if hint.wait is None else pacing.spared(state, now)
        state = replace(state, lowest=lowest, used=0.0, proven=None, spared=spared)
        span = now - state.shut_at
        state = replace(state, shut_at=now, ran_for=span, filled=state.served)
    state = replace(
        state,
        ceiling=ceiling,
        is_learnt=True,
        refused_at=now,
        refusals=refusals,
        parkings=state.parkings + 1,
    )
    return _park(state, hint, now, pacing.backoff(state, now))


def _park(
    state: LaneState, hint: RateLimitInfo, now: Instant, otherwise: float
) -> LaneState:
    wait = otherwise if hint.wait is None else hint.wait
    until = now + math.ceil(min(max(wait, 0), LONGEST_WAIT))
    return replace(state, parked_until=max(state.parked_until, until))


def _refused(starts: tuple[Starts, ...], permit: Permit) -> list[Starts]:
    second = permit.at // SECOND
    return [
        s._replace(refused=min(s.calls, s.refused + 1)) if s.second == second else s
        for s in starts
    ]
