"""How long to wait before the next attempt. Pure: the dice are passed in."""

import math
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """
    Exponential delays with a cap and additive jitter.

    `max_attempts` counts runs: three attempts have two delays.
    """

    max_attempts: int = 3
    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(seconds=30)
    jitter: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError("max_attempts counts runs: it is at least 1")

    def delay(self, attempt: int, roll: float) -> timedelta:
        """Wait this long after `attempt` (from 1); `roll` is in [0, 1)."""
        try:
            grown = self.base.total_seconds() * self.factor ** (attempt - 1)
        except OverflowError:
            grown = math.inf
        seconds = min(grown, self.cap.total_seconds())
        return timedelta(seconds=seconds) + self.jitter * roll
