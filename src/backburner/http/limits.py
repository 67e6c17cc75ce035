"""
The rate limit of API keys in this process, and its headers.

The headers are those of the IETF's draft "RateLimit header fields for HTTP".
"""

from collections.abc import Callable
from typing import Any, Final

from starlette.types import Scope

from backburner.domain.auth.allowance import Allowance, AllowanceStatus, take
from backburner.domain.jobs.job import Instant
from backburner.http.problems import TooManyRequests

POLICY: Final = "key"
STATE: Final = "rate_limit"
"""The name in the request's state under which the headers are stored."""


class Limits:
    """One token bucket for each key that was used."""

    def __init__(self, rate: float, now: Callable[[], Instant]) -> None:
        self._allowance = Allowance(rate)
        self._now = now
        self._full_at: dict[str, int] = {}

    def count(self, key_id: str, scope: Scope) -> None:
        """Count a request, store its headers, and refuse it if it is over the limit."""
        found = self._full_at.get(key_id)
        self._full_at[key_id], status = take(found, self._allowance, self._now())
        scope["state"][STATE] = self._headers(status)
        if status.is_over:
            raise TooManyRequests(status.seconds)

    def _headers(self, status: AllowanceStatus) -> tuple[tuple[bytes, bytes], ...]:
        quota, window = self._allowance.quota, self._allowance.window
        left = f'"{POLICY}";r={status.remaining};t={status.seconds}'
        return (
            (b"ratelimit-policy", f'"{POLICY}";q={quota};w={window}'.encode()),
            (b"ratelimit", left.encode()),
        )


def headers_of(scope: Scope) -> Any:
    """Return the rate-limit headers of a response, if any."""
    return scope["state"].get(STATE, ())
