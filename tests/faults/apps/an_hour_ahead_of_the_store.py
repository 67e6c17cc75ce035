"""A machine an hour ahead whose processes judge everything by their own clock."""

from collections.abc import Awaitable, Callable

from an_hour_ahead import app

from backburner.clock import StoreClock
from backburner.domain.jobs.job import Instant

__all__ = ["app"]


async def keep_own_time(
    clock: StoreClock, _read: Callable[[], Awaitable[Instant]]
) -> Instant:
    """Take the machine's time for the store's."""
    return clock.now()


StoreClock.follow = keep_own_time  # type: ignore[method-assign]
