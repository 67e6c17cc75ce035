"""
A lane to a provider: its limits, shared by all workers, and its learnt state.

How fast it goes is decided in `pace`, who may call in `permit`. Instants are the
store's; every one that is kept is bounded by the present, so a clock that is set back
can shut no lane for long.
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
"""Calls a minute of a lane that nobody knows; it doubles while nothing is refused."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What a provider allows, as declared; a limit that is not named is none."""

    name: str
    """
    `provider/model#credential`, or `provider/model` for all its credentials together.

    See `lane_name` for how a credential is written.
    """
    requests: int | None = None
    """Calls started in any minute, by all workers together."""
    tokens: int | None = None
    """Tokens in any minute, by the calls' estimates."""
    at_once: int | None = None
    """Calls under way at once, of all workers together."""
    spacing: timedelta = timedelta()
    """The least time between two starts."""

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_NAME or not self.name.isprintable():
            raise ConfigurationError(
                f"a lane's name has 1 to {MAX_NAME} printable characters"
            )
        for limit in (self.requests, self.tokens, self.at_once):
            if limit is not None and limit < 1:
                raise ConfigurationError(f"lane {self.name!r}: a limit is at least 1")
        if not timedelta() <= self.spacing <= timedelta(hours=1):
            raise ConfigurationError(
                f"lane {self.name!r}: spacing is between nothing and an hour"
            )


class Starts(NamedTuple):
    """What was started within one second."""

    second: int
    calls: int
    refused: int
    tokens: int

    @property
    def served(self) -> int:
        """How many were not refused."""
        return self.calls - self.refused


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane's limits and what it remembers."""

    name: str
    requests: int | None = None
    tokens: int | None = None
    at_once: int | None = None
    spacing: int = 0
    """In milliseconds."""
    ceiling: float = FIRST_PACE
    """The most calls a minute that are believed to be served."""
    is_learnt: bool = False
    """Whether the ceiling is one: calls were refused above it."""
    used: float = 0.0
    """Milliseconds in use since the last spell of refusals."""
    proven: float | None = None
    """At which of them it was clear that the ceiling is higher."""
    told: int | None = None
    """Calls a minute, as the provider said last."""
    told_tokens: int | None = None
    told_at: Instant = 0
    due_at: Instant = 0
    """When the next call is due by the pace."""
    started_at: Instant = 0
    refused_at: Instant = 0
    refusals: int = 0
    """How many in a row; with any, one call at a time tries."""
    lowest: float = 1.0
    """What this spell of refusals leaves of the ceiling at least."""
    shut_at: Instant = 0
    """When this spell of refusals began …"""
    ran: int = 0
    """… how many calls were served since the one before …"""
    ran_for: int = 0
    """… and in how many milliseconds."""
    filled: int = 0
    """How many the last minute held when it began."""
    spared: float = 0.0
    """The ceiling to go on with if they came by chance and not for the pace."""
    is_doubted: bool = False
    """Whether that is being tried."""
    trials: int = 0
    """How often it was in vain, less what was served …"""
    tried_at: Instant = 0
    """… and when last."""
    parked_until: Instant = 0
    probe: str | None = None
    """The permit of the call that tries."""
    line: float = 0.0
    """How many wait, as far as can be told from who asked and was served."""
    lined_at: Instant = 0
    awaited_at: Instant = 0
    """The last turn that somebody was told to come for."""
    took: float = 0.0
    """How long calls take, lately, in milliseconds."""
    parkings: int = 0
    """How often it was parked, ever."""
    starts: tuple[Starts, ...] = ()
    """Those of the last minute."""

    @property
    def is_limited(self) -> bool:
        """Whether somebody declared a limit."""
        limits = (self.requests, self.tokens, self.at_once, self.spacing or None)
        return any(limit is not None for limit in limits)

    @property
    def served(self) -> int:
        """How many calls of the last minute were not refused."""
        return sum(start.served for start in self.starts)


def lane_name(
    provider: str, model: str, credential: str | None = None, label: str | None = None
) -> str:
    """Name a lane; of a credential only a digest is ever written down."""
    if credential is not None and label is None:
        label = hashlib.sha256(credential.encode()).hexdigest()[:DIGEST]
    return f"{provider}/{model}" if label is None else f"{provider}/{model}#{label}"


def model_lane(name: str) -> str | None:
    """Return the lane of all credentials of a lane's model, if it is of one of them."""
    model, separator, _ = name.partition("#")
    return model if separator and model else None


def is_reachable(lane: Lane, providers: Iterable[tuple[str, str | None]]) -> bool:
    """Say whether calls to one of these, by name and credential, go by a lane."""
    provider, _, rest = lane.name.partition("/")
    _, is_labelled, label = rest.partition("#")
    return any(
        name == provider
        and (not is_labelled or lane_name("", "", credential) == f"/#{label}")
        for name, credential in providers
    )


def declared(state: LaneState, lane: Lane) -> LaneState:
    """Put a lane under these limits; what it learnt stays, below them."""
    return replace(
        state,
        requests=lane.requests,
        tokens=lane.tokens,
        at_once=lane.at_once,
        spacing=lane.spacing // timedelta(milliseconds=1),
    )


def present(state: LaneState, now: Instant) -> LaneState:
    """Forget what is over, and have nothing lie in a future that cannot be."""
    this = now // SECOND
    starts = [s for s in state.starts if this - MINUTE // SECOND <= s.second <= this]
    ahead = [s for s in state.starts if s.second > this]
    if ahead:
        # The clock was set back: they were just now, whatever it says.
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
    """Return how long until the last minute holds no more than `most`."""
    total = sum(map(counted, state.starts))
    for start in state.starts:
        if total <= most:
            break
        total -= counted(start)
        if total <= most:
            return (start.second + 1) * SECOND + MINUTE - now
    return 0.0


def added(starts: Sequence[Starts], more: Starts) -> list[Starts]:
    """Count what was started now."""
    if starts and starts[-1].second == more.second:
        last = starts[-1]
        calls, refused, tokens = (last[i] + more[i] for i in (1, 2, 3))
        return [*starts[:-1], Starts(more.second, calls, refused, tokens)]
    return [*starts, more]
