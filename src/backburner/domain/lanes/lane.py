"""
A lane to a provider: its limits, shared by all workers, and its learnt state.

`pace` decides the rate of its calls, `permit` who may make the next one. Instants are
the store's. Every stored one is bounded by the present, so that a clock that is set
back cannot close a lane for long.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, NamedTuple

from backburner.domain.errors import ConfigurationError
from backburner.domain.jobs.job import Instant
from backburner.domain.lanes.rate_limit_headers import LONGEST_WAIT

MAX_NAME: Final = 200
DIGEST: Final = 8
MINUTE: Final = 60_000
SECOND: Final = 1000
FIRST_PACE: Final = 60.0
"""Calls per minute of a lane with an unknown limit; doubles until a refusal."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The declared limits of a provider; `None` means unlimited."""

    name: str
    """
    `provider/model#credential`, or `provider/model` for all its credentials together.

    See `lane_name` for how a credential is written.
    """
    requests: int | None = None
    """The maximum number of calls started per minute, by all workers together."""
    tokens: int | None = None
    """The maximum number of tokens per minute, by the estimates of the calls."""
    at_once: int | None = None
    """The maximum number of concurrent calls, of all workers together."""
    spacing: timedelta = timedelta()
    """The minimum time between two starts."""

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_NAME or not self.name.isprintable():
            raise ConfigurationError(
                f"a lane's name must have 1 to {MAX_NAME} printable characters"
            )
        for limit in (self.requests, self.tokens, self.at_once):
            if limit is not None and limit < 1:
                raise ConfigurationError(
                    f"lane {self.name!r}: a limit must be at least 1, not {limit}"
                )
        if not timedelta() <= self.spacing <= timedelta(hours=1):
            raise ConfigurationError(
                f"lane {self.name!r}: spacing must be between 0 and 1 hour"
            )


class Starts(NamedTuple):
    """The calls that started within one second."""

    second: int
    calls: int
    refused: int
    tokens: int

    @property
    def served(self) -> int:
        """How many of them were not refused."""
        return self.calls - self.refused


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane's limits and what it has learnt."""

    name: str
    requests: int | None = None
    tokens: int | None = None
    at_once: int | None = None
    spacing: int = 0
    """In milliseconds."""
    ceiling: float = FIRST_PACE
    """The estimate of the most calls per minute that the provider serves."""
    is_learnt: bool = False
    """Whether the ceiling was learnt from refusals."""
    used: float = 0.0
    """Milliseconds of use since the last series of refusals."""
    proven: float | None = None
    """The value of `used` when it became clear that the ceiling is too low."""
    told: int | None = None
    """The limit in calls per minute that the provider reported last."""
    told_tokens: int | None = None
    told_at: Instant = 0
    due_at: Instant = 0
    """When the next call is due by the pace."""
    started_at: Instant = 0
    refused_at: Instant = 0
    refusals: int = 0
    """The number of consecutive refusals; if any, calls are made one at a time."""
    lowest: float = 1.0
    """The lower bound of the ceiling during this series of refusals."""
    shut_at: Instant = 0
    """When this series of refusals began."""
    ran: int = 0
    """How many calls were served since the series before it."""
    ran_for: int = 0
    """In how many milliseconds they were served."""
    filled: int = 0
    """How many calls were served in the minute before it began."""
    spared: float = 0.0
    """The ceiling to keep if the refusals do not depend on the rate."""
    is_doubted: bool = False
    """Whether that is being tested."""
    trials: int = 0
    """How many such tests failed, less the calls that were served."""
    tried_at: Instant = 0
    """When the last test began."""
    parked_until: Instant = 0
    probe: str | None = None
    """The permit of the test call while calls are being refused."""
    line: float = 0.0
    """The estimated number of waiting callers, from requests and permits."""
    lined_at: Instant = 0
    awaited_at: Instant = 0
    """The last turn that was assigned to a caller."""
    took: float = 0.0
    """The average duration of recent calls, in milliseconds."""
    parkings: int = 0
    """How often the lane was parked, in total."""
    starts: tuple[Starts, ...] = ()
    """The calls of the last minute, by second."""

    @property
    def is_limited(self) -> bool:
        """Whether a limit is declared."""
        limits = (self.requests, self.tokens, self.at_once, self.spacing or None)
        return any(limit is not None for limit in limits)

    @property
    def served(self) -> int:
        """How many calls of the last minute were not refused."""
        return sum(start.served for start in self.starts)


def lane_name(
    provider: str, model: str, credential: str | None = None, label: str | None = None
) -> str:
    """Return a lane's name; a credential appears in it only as a digest."""
    if credential is not None and label is None:
        label = hashlib.sha256(credential.encode()).hexdigest()[:DIGEST]
    return f"{provider}/{model}" if label is None else f"{provider}/{model}#{label}"


def model_lane(name: str) -> str | None:
    """Return the lane for all credentials of a model, given that of one credential."""
    model, separator, _ = name.partition("#")
    return model if separator and model else None


def is_reachable(lane: Lane, providers: Iterable[tuple[str, str | None]]) -> bool:
    """Return whether calls to one of these providers and credentials use a lane."""
    provider, _, rest = lane.name.partition("/")
    _, is_labelled, label = rest.partition("#")
    return any(
        name == provider
        and (not is_labelled or lane_name("", "", credential) == f"/#{label}")
        for name, credential in providers
    )


def declared(state: LaneState, lane: Lane) -> LaneState:
    """Apply declared limits to a lane; what it has learnt is kept."""
    return replace(
        state,
        requests=lane.requests,
        tokens=lane.tokens,
        at_once=lane.at_once,
        spacing=lane.spacing // timedelta(milliseconds=1),
    )


def present(state: LaneState, now: Instant) -> LaneState:
    """Drop what is over, and move instants from the future to the present."""
    this = now // SECOND
    starts = [s for s in state.starts if this - MINUTE // SECOND <= s.second <= this]
    ahead = [s for s in state.starts if s.second > this]
    if ahead:
        # The clock was set back: count them as started just now.
        calls, refused, tokens = (sum(s[i] for s in ahead) for i in (1, 2, 3))
        starts = added(starts, Starts(this, calls, refused, tokens))
    longest = now + LONGEST_WAIT
    return replace(
        state,
        starts=tuple(starts),
        parked_until=min(state.parked_until, longest),
        due_at=min(state.due_at, longest if state.spacing else now + 2 * MINUTE),
        started_at=min(state.started_at, now),
        refused_at=min(state.refused_at, now),
        shut_at=min(state.shut_at, now),
        tried_at=min(state.tried_at, now),
        lined_at=min(state.lined_at, now),
        awaited_at=min(state.awaited_at, longest),
        told_at=min(state.told_at, now),
    )


def until_room(
    state: LaneState, counted: Callable[[Starts], int], most: int, now: Instant
) -> float:
    """Return the time until the last minute contains at most `most`."""
    total = sum(map(counted, state.starts))
    for start in state.starts:
        if total <= most:
            break
        total -= counted(start)
        if total <= most:
            return (start.second + 1) * SECOND + MINUTE - now
    return 0.0


def added(starts: Sequence[Starts], more: Starts) -> list[Starts]:
    """Add calls that start now."""
    if starts and starts[-1].second == more.second:
        last = starts[-1]
        calls, refused, tokens = (last[i] + more[i] for i in (1, 2, 3))
        return [*starts[:-1], Starts(more.second, calls, refused, tokens)]
    return [*starts, more]
