"""Time and chance, so that a simulation can own both."""

from typing import Protocol

from backburner.domain.jobs.job import Instant


class Clock(Protocol):
    """Reads the time; the only one who does."""

    def now(self) -> Instant:
        """Return the wall clock's time. It may jump."""
        ...

    def monotonic(self) -> Instant:
        """Return milliseconds that never go back, the same for the whole machine."""
        ...


class Dice(Protocol):
    """Draws lots; the only one who does."""

    def roll(self) -> float:
        """Return a number in [0, 1)."""
        ...

    def token(self) -> str:
        """Return sixteen characters that nobody drew before."""
        ...

    def uuid(self, now: Instant) -> str:
        """Return a UUIDv7: sorted by time, then by the order of drawing."""
        ...
