"""Schedules: jobs that are submitted repeatedly by a cron expression."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, get_args
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from backburner.domain.errors import ConfigurationError
from backburner.domain.jobs.job import Instant, Owner
from backburner.domain.queues.schedule import Missed, ScheduleState
from backburner.engine.registry import Capability
from backburner.engine.submit.submission import LOCAL

MAX_NAME: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """
    Submits a job of a capability at every tick of a cron expression.

    When clocks change, a tick whose time does not exist fires right after the gap, and
    one whose time occurs twice fires once.
    """

    name: str
    cron: str
    capability: Capability[Any, Any] | str
    input: Any = None
    timezone: str = "UTC"
    missed: Missed = "skip"
    """
    What happens to ticks that passed while no process ran: `skip`, `run_once` for all
    of them together, or `run_all`. A tick less than a minute late is not missed.
    """
    owner: Owner = LOCAL
    completion: Mapping[str, Any] | None = None
    """The job to submit when a job of the schedule ends; see `submit`."""

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_NAME or not self.name.isprintable():
            raise ConfigurationError(
                f"a schedule's name has 1 to {MAX_NAME} printable characters"
            )
        if self.missed not in get_args(Missed):
            known = ", ".join(get_args(Missed))
            raise ConfigurationError(
                f"schedule {self.name!r}: `missed` is one of {known}"
            )
        try:
            following(self.cron, self.timezone)(0)
        except (CronSimError, StopIteration):
            raise ConfigurationError(
                f"schedule {self.name!r}: {self.cron!r} is not a cron expression that "
                "ever fires"
            ) from None
        except (KeyError, ValueError, OSError):
            raise ConfigurationError(
                f"schedule {self.name!r}: {self.timezone!r} is not a time zone"
            ) from None

    def state(self, now: Instant) -> ScheduleState:
        """Return the initial stored state of the schedule."""
        asked = self.capability
        return ScheduleState(
            name=self.name,
            capability=asked if isinstance(asked, str) else asked.name,
            cron=self.cron,
            timezone=self.timezone,
            missed=self.missed,
            next_at=following(self.cron, self.timezone)(now),
        )


def ticks_of(state: ScheduleState, count: int) -> list[Instant]:
    """Return the next ticks of a schedule; fewer if its cron expression ends."""
    found = [state.next_at]
    try:
        after = following(state.cron, state.timezone)
        while len(found) < count:
            found.append(after(found[-1]))
    except (CronSimError, StopIteration, KeyError, ValueError, OSError):
        # Another process, with other time zones, may have stored it.
        return found
    return found


def following(cron: str, timezone: str) -> Callable[[Instant], Instant]:
    """Return a function that gives the first tick after an instant."""
    zone = ZoneInfo(timezone)

    def after(instant: Instant) -> Instant:
        moment = _EPOCH + timedelta(milliseconds=instant)
        ticks = CronSim(cron, moment.astimezone(zone))
        tick = instant
        # In the hour that occurs twice, the next tick may be in the past already.
        while tick <= instant:
            tick = (next(ticks) - _EPOCH) // timedelta(milliseconds=1)
        return tick

    return after
