"""
Decides who may call a provider now, and when others should ask again.

Nothing here waits: `take` answers with a permit or the time at which to ask again.
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
"""How many may go at once by a lane that nobody knows …"""
BURST: Final = 4
"""… and by one whose ceiling is doubted, to see how many are served."""
SLACK: Final = 1_000
"""How far behind its pace a lane may catch up."""
HEAD: Final = 3
"""How many turns are dealt out."""
AGAIN: Final = 0.1
"""What whoever asks again in vain adds to the line: it may have been forgotten."""
FORGOTTEN: Final = 15 * MINUTE
"""In which time half of the line is, unless it is heard of."""


class PermitRequest(NamedTuple):
    """A request to call."""

    id: str
    """The permit's, should there be one."""
    tokens: int = 0
    waited: int = 0
    """Milliseconds that the job has been put back in all: the longest goes first."""
    roll: float = 0.5
    """A throw of the dice, from 0 to 1, by which those who wait are spread."""
    goes_first: bool = False
    """Whether it waits in a slot, having paid for other calls: others wait longer."""


class Permit(NamedTuple):
    """Leave to make one call."""

    id: str
    at: Instant
    is_probe: bool = False


class Wait(NamedTuple):
    """Not now."""

    span: int
    """How long, in milliseconds: the caller's clock may be another than the store's."""


class Held(NamedTuple):
    """The permits that are out, of workers that live."""

    calls: int = 0
    has_probe: bool = False


def take(
    state: LaneState, ask: PermitRequest, *, held: Held, now: Instant
) -> tuple[LaneState, Permit | Wait]:
    """Give leave to call, or say when to ask again."""
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
    Give leave to call by a lane that is one of several of a model's.

    `whole` is the lane of all credentials of the model. Only what was declared for it
    counts: providers limit and refuse each credential by itself.
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
    """Note by the lane of all credentials how long a call of one of them took."""
    return replace(whole, took=_took(whole, permit, now))


def give(
    state: LaneState, permit: Permit, hint: RateLimitInfo | None, *, now: Instant
) -> LaneState:
    """Take a permit back, with what the provider said; `None`: nothing was heard."""
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
    """Say when whoever was refused is to ask again."""
    wait = max(0, state.parked_until - now)
    gap = MINUTE / pace(state, now)
    return _put_off(state, ask, wait, gap, now, is_new=True)


class Forecast(NamedTuple):
    """The calls that wait for a lane, and how long they take in all."""

    waiting: int
    """About how many: those who wait are in no list."""
    span: int
    """In milliseconds, at the present pace."""


def forecast(state: LaneState, *, held: Held, now: Instant) -> Forecast:
    """Return when the calls that wait now will have started."""
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
    """Say whether the lane is shut, or opened for one call that tries."""
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
    """Return how long no call may start, by any limit, declared, told or learnt."""
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
    """Return how long no call may start, by each of the limits that are known."""
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
    """Return how far a lane may run ahead: one that nobody knows, a few calls."""
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
    Tell when to ask again: spread over the time in which the lane can serve all.

    The next few turns are dealt out to whoever asks. Those at the line's end ask again
    when half of it is over, so that a pace that rises finds somebody there; whoever
    has waited for as long as the line takes comes soon.
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
    """Return how many wait; those who never come again are forgotten by and by."""
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
        # Under way when the first was refused: the same news.
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
