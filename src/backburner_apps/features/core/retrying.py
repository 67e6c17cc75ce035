"""The delays after which a job with a transient error is delivered again."""

from typing import Final

MAX_RECEIVES: Final = 3
"""Maximum number of deliveries before a job becomes a dead letter."""
FIRST_DELAY: Final = 2.0
"""Seconds before the second delivery; doubled for each further one."""
MAX_DELAY: Final = 60.0


def delay_after(receive: int, retry_after: float | None = None) -> float:
    """Return how many seconds to wait after the given receive, counted from 1."""
    grown = FIRST_DELAY * 2.0 ** (receive - 1)
    return min(max(grown, retry_after or 0.0), MAX_DELAY)
