"""Decides which ticks of a schedule fire if some were missed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from backburner.domain.jobs.job import Instant, Owner

Missed: TypeAlias = Literal["skip", "run_once", "run_all"]
"""What happens to ticks that passed while no process was running."""

GRACE_MS: Final = 60_000
"""A tick that fires within this time is late, not missed."""
MOST: Final = 100
"""How many missed ticks fire at once; the others follow in the next round."""


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A stored schedule."""

    name: str
    capability: str
    cron: str
    timezone: str
    missed: Missed
    next_at: Instant
    last_at: Instant | None = None
    paused: bool = False
    owner: Owner | None = None
    """The owner of its jobs; `None` if an application's code declares the schedule."""
    input: str | None = None
    """The input of its jobs, as JSON, unless the code provides it."""


class Due(NamedTuple):
    """The ticks that fire now, and the time of the next one."""

    ticks: tuple[Instant, ...]
    next_at: Instant


def due(
    state: ScheduleState, following: Callable[[Instant], Instant], now: Instant
) -> Due:
    """Return the ticks that fire; none if the next one is in the future."""
    tick = state.next_at
    ticks: list[Instant] = []
    while tick <= now and (state.missed != "run_all" or len(ticks) < MOST):
        if state.last_at is None or tick > state.last_at:
            ticks.append(tick)
        if state.missed == "run_all":
            tick = following(tick)
        else:
            # Only the latest counts: thousands of ticks may have been missed.
            tick = following(max(tick, now - GRACE_MS))
    if state.missed == "run_once":
        ticks = ticks[-1:]
    elif state.missed == "skip":
        ticks = [tick for tick in ticks if now - tick <= GRACE_MS][-1:]
    return Due(tuple(ticks), tick)
