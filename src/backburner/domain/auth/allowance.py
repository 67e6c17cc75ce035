"""
The rate limit of one caller: a token bucket.

Each request takes a token. The bucket holds what one second brings, or a single token
if that is less, so whoever was quiet may make a few at once. All that is kept of it is
the time at which it is full: each token puts that off by as long as it takes to come
back.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from backburner.domain.jobs.job import Instant

SECOND: Final = 1_000_000
"""In microseconds: whole numbers, so that nothing is lost by rounding on the way."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """So many requests a second."""

    rate: float

    @property
    def quota(self) -> int:
        """How many requests may come at once."""
        return max(1, int(self.rate))

    @property
    def window(self) -> int:
        """In how many seconds as many may come again."""
        return _seconds(self.quota * self.token)

    @property
    def token(self) -> int:
        """How long one token takes to come back, in microseconds."""
        return max(1, round(SECOND / self.rate))


class AllowanceStatus(NamedTuple):
    """Where a caller stands after it asked."""

    is_over: bool
    """Whether it asked for more than it may."""
    remaining: int
    seconds: int
    """Until the bucket is full; for a caller who is over, until it may ask again."""


def take(
    full_at: int | None, allowance: Allowance, now: Instant
) -> tuple[int, AllowanceStatus]:
    """Take a token for a request, if there is one; return when the bucket is full."""
    token, now = allowance.token, now * 1000
    whole = allowance.quota * token
    # The bounds are for a clock that was set: no bucket is more than full or empty.
    missing = 0 if full_at is None else min(whole, max(0, full_at - now))
    if missing + token > whole:
        wait = _seconds(missing + token - whole)
        return now + missing, AllowanceStatus(is_over=True, remaining=0, seconds=wait)
    missing += token
    standing = AllowanceStatus(
        is_over=False,
        remaining=(whole - missing) // token,
        seconds=_seconds(missing),
    )
    return now + missing, standing


def _seconds(microseconds: int) -> int:
    return -(-microseconds // SECOND)
