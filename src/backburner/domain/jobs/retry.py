"""Delays between attempts. Pure: random numbers are passed in."""

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Self


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """
    Exponential delays with a cap, or a list of delays; jitter is only added.

    `max_attempts` counts runs: three attempts have two delays.
    """

    max_attempts: int = 3
    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(seconds=30)
    jitter: timedelta = timedelta(seconds=1)
    spread: float = 0.0
    """Additional jitter, as a share of the delay."""
    delays: tuple[timedelta, ...] = ()
    """Fixed delays instead of exponential ones; the last one repeats."""

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError("max_attempts counts runs and must be at least 1")

    @classmethod
    def listed(cls, *delays: timedelta, spread: float = 0.0) -> Self:
        """Return a policy with a first attempt and one more after each delay."""
        return cls(
            max_attempts=len(delays) + 1,
            jitter=timedelta(),
            spread=spread,
            delays=delays,
        )

    def delay(self, attempt: int, roll: float) -> timedelta:
        """Return the delay after `attempt` (from 1); `roll` is in [0, 1)."""
        least = self._least(attempt)
        return least + (least * self.spread + self.jitter) * roll

    def longest(self) -> timedelta:
        """Return the maximum sum of all delays."""
        delays = (self.delay(attempt, 1.0) for attempt in range(1, self.max_attempts))
        return sum(delays, timedelta())

    def _least(self, attempt: int) -> timedelta:
        if self.delays:
            return self.delays[min(attempt, len(self.delays)) - 1]
        try:
            grown = self.base.total_seconds() * self.factor ** (attempt - 1)
        except OverflowError:
            grown = math.inf
        return timedelta(seconds=min(grown, self.cap.total_seconds()))
