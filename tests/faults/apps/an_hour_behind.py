"""`breakable` on a machine whose clock is an hour behind."""

from an_hour_ahead import HOUR
from breakable import app

from backburner import wiring
from backburner.clock import SystemClock
from backburner.domain.jobs.job import Instant

__all__ = ["app"]


class ClockBehind(SystemClock):
    """Shows what the others saw an hour ago."""

    def now(self) -> Instant:
        return super().now() - HOUR


wiring.SystemClock = ClockBehind  # type: ignore[misc]
