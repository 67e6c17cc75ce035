"""
The rate limit of one caller: a token bucket.

Each request takes one token. The bucket holds one second's worth of tokens, or one
token if that is less, so a caller may send a short burst. The only stored state is the
time at which the bucket will be full; each token taken moves it later by the time that
one token takes to refill.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from backburner.domain.jobs.job import Instant

SECOND: Final = 1_000_000
"""One second in microseconds: integers, so that no precision is lost by rounding."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """A rate limit, in requests per second."""

    rate: float

    @property
    def quota(self) -> int:
        """The largest burst: how many requests may arrive at once."""
        return max(1, int(self.rate))

    @property
    def window(self) -> int:
        """How many seconds it takes to refill an empty bucket."""
        return _seconds(self.quota * self.token)

    @property
    def token(self) -> int:
        """How long one token takes to refill, in microseconds."""
        return max(1, round(SECOND / self.rate))


class AllowanceStatus(NamedTuple):
    """The state of a caller's rate limit after a request."""

    is_over: bool
    """Whether the request exceeded the limit."""
    remaining: int
    seconds: int
    """Seconds until the bucket is full; if over the limit, until the next request."""


def take(
    full_at: int | None, allowance: Allowance, now: Instant
) -> tuple[int, AllowanceStatus]:
    """Take a token for a request, if there is one; return when the bucket is full."""
    token, now = allowance.token, now * 1000
    whole = allowance.quota * token
    # The clock may have been set back or forward: clamp to an empty or full bucket.
    missing = 0 if full_at is None else min(whole, max(0, full_at - now))
    if missing + token > whole:
        wait = _seconds(missing + token - whole)
        return now + missing, AllowanceStatus(is_over=True, remaining=0, seconds=wait)
    missing += token
    status = AllowanceStatus(
        is_over=False,
        remaining=(whole - missing) // token,
        seconds=_seconds(missing),
    )
    return now + missing, status


def _seconds(microseconds: int) -> int:
    return -(-microseconds // SECOND)
