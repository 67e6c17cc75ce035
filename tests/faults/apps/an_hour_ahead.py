"""`breakable` on a machine whose clock is an hour ahead."""

from breakable import app

from backburner import wiring
from backburner.clock import SystemClock
from backburner.domain.jobs.job import Instant

__all__ = ["app"]

HOUR = 3_600_000


class ClockAhead(SystemClock):
    """Shows what the others will see in an hour."""

    def now(self) -> Instant:
        return super().now() + HOUR


wiring.SystemClock = ClockAhead  # type: ignore[misc]
