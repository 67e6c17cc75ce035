"""Which ticks of a schedule fire when some of them were missed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from backburner.domain.jobs.job import Instant, Owner

Missed: TypeAlias = Literal["skip", "run_once", "run_all"]
"""What becomes of ticks at which nobody was there to fire them."""

GRACE_MS: Final = 60_000
"""A tick that fires within this time is late, not missed."""
MOST: Final = 100
"""How many missed ticks fire in one go; the rest come with the next."""


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule as the store keeps it."""

    name: str
    capability: str
    cron: str
    timezone: str
    missed: Missed
    next_at: Instant
    last_at: Instant | None = None
    paused: bool = False
    owner: Owner | None = None
    """Whose jobs it submits; `None`: the code of an application declares it."""
    input: str | None = None
    """What its jobs are given, as JSON, unless the code says so."""


class Due(NamedTuple):
    """The ticks that fire now, and the one that comes next."""

    ticks: tuple[Instant, ...]
    next_at: Instant


def due(
    state: ScheduleState, following: Callable[[Instant], Instant], now: Instant
) -> Due:
    """Say which ticks fire; none if the next one is still to come."""
    tick = state.next_at
    ticks: list[Instant] = []
    while tick <= now and (state.missed != "run_all" or len(ticks) < MOST):
        if state.last_at is None or tick > state.last_at:
            ticks.append(tick)
        if state.missed == "run_all":
            tick = following(tick)
        else:
            # Only the latest counts: a schedule may have slept through thousands.
            tick = following(max(tick, now - GRACE_MS))
    if state.missed == "run_once":
        ticks = ticks[-1:]
    elif state.missed == "skip":
        ticks = [tick for tick in ticks if now - tick <= GRACE_MS][-1:]
    return Due(tuple(ticks), tick)
