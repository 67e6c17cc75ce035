"""The clock and the random generator, which a simulation can replace."""

from typing import Protocol

from backburner.domain.jobs.job import Instant


class Clock(Protocol):
    """Reads the time. No other code does."""

    def now(self) -> Instant:
        """Return the wall clock's time. It may jump."""
        ...

    def monotonic(self) -> Instant:
        """Return milliseconds that never go back, the same for the whole machine."""
        ...


class Dice(Protocol):
    """Returns random values. No other code does."""

    def roll(self) -> float:
        """Return a number in [0, 1)."""
        ...

    def token(self) -> str:
        """Return a random token of sixteen characters."""
        ...

    def uuid(self, now: Instant) -> str:
        """Return a UUIDv7: ordered by time, then by the order of creation."""
        ...
