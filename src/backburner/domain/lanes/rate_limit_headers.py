"""
Reads the rate-limit headers of a provider's response.

Responses are not trusted: waits are bounded, invalid numbers are ignored, and only a
few values of each kind are read.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

from backburner.domain.jobs.job import Instant

LONGEST_WAIT: Final = 3_600_000
"""One hour, in milliseconds: after a longer wait, calls are retried once an hour."""
LARGEST_LIMIT: Final = 10**9
REFUSED: Final = frozenset({429, 529})
LONGEST_VALUE: Final = 100
MOST_VALUES: Final = 8
LARGEST_BODY: Final = 65_536
LONGEST_MINUTE: Final = 90_000
"""A reset that is further away does not belong to a limit per minute."""
EPOCH: Final = 10**9
"""Numbers from here on are instants in seconds rather than durations."""
EPOCH_MS: Final = 10**12

Headers = Mapping[str, Any] | Iterable[tuple[Any, Any]]

_NUMBER = re.compile(r"\d{1,15}(\.\d{1,15})?")
_SPAN = re.compile(
    r"(?:(?P<d>\d{1,9})d)?(?:(?P<h>\d{1,9})h)?(?:(?P<m>\d{1,9})m(?!s))?"
    r"(?:(?P<s>\d{1,9}(?:\.\d{1,12})?)s)?(?:(?P<ms>\d{1,12}(?:\.\d{1,12})?)ms)?"
)
_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


class RateLimitInfo(NamedTuple):
    """What a response says about the limits of its lane."""

    is_refused: bool = False
    wait: int | None = None
    """How long to make no call, in milliseconds."""
    requests: int | None = None
    """The limit in calls per minute that the provider reports."""
    tokens: int | None = None


SERVED: Final = RateLimitInfo()


def rate_limit_info(
    status: int, headers: Headers | None = None, body: Any = None, *, now: Instant
) -> RateLimitInfo:
    """Parse a response; `now` is the clock for dates in it."""
    values = _values(headers)
    is_refused = status in REFUSED and not has_no_quota(*_codes(body))
    wait = None
    if is_refused:
        wait = _first(
            _retry_after(values, now), _retry_delay(body), _until_reset(values, now)
        )
    elif _remaining(values, ("x-ratelimit-remaining", "ratelimit-remaining")) == 0:
        wait = _reset(values, ("x-ratelimit-reset", "ratelimit-reset"), now)
    return RateLimitInfo(is_refused, wait, _requests(values, now), _tokens(values))


def retry_after(headers: Headers, *, now: Instant) -> int | None:
    """Return the time to wait by `Retry-After`, in milliseconds; `None` without it."""
    return _retry_after(_values(headers), now)


def has_no_quota(*codes: str) -> bool:
    """
    Return whether an account has no credit left, by a provider's error codes.

    Some providers send these codes with status 429, like a rate limit.
    """
    return any(_NO_QUOTA.search(text) for text in codes)


_NO_QUOTA = re.compile(
    r"\b(insufficient_quota|billing_hard_limit_reached|billing_not_active)\b"
)


def _codes(body: Any) -> list[str]:
    """Return the machine-readable codes of an error, as OpenAI and others send them."""
    parsed = _parsed(body)
    error = parsed.get("error", parsed) if isinstance(parsed, Mapping) else None
    if not isinstance(error, Mapping):
        return []
    values = (error.get(name) for name in ("code", "type"))
    return [value for value in values if isinstance(value, str)]


def _values(headers: Headers | None) -> dict[str, list[str]]:
    """Return the headers' values by lower-case name."""
    found: dict[str, list[str]] = {}
    if headers is None:
        return found
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    for name, value in pairs:
        values = found.setdefault(_text(name).lower(), [])
        text = _text(value).strip()
        if len(text) <= LONGEST_VALUE and len(values) < MOST_VALUES:
            values.append(text)
    return found


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _retry_after(values: Mapping[str, list[str]], now: Instant) -> int | None:
    exact = [_milliseconds(text, 1) for text in values.get("retry-after-ms", ())]
    return _first(
        _longest(exact),
        _longest([_later(text, now) for text in values.get("retry-after", ())]),
    )


def _retry_delay(body: Any) -> int | None:
    """Read Gemini's `error.details[].retryDelay`."""
    parsed = _parsed(body)
    if isinstance(parsed, list):
        parsed = parsed[0] if parsed else None
    error = parsed.get("error") if isinstance(parsed, Mapping) else None
    details = error.get("details") if isinstance(error, Mapping) else None
    if not isinstance(details, list):
        return None
    delays = [
        detail.get("retryDelay") for detail in details if isinstance(detail, Mapping)
    ]
    return _longest(
        [_span(d) for d in delays[:MOST_VALUES] if isinstance(d, str)],
    )


def _parsed(body: Any) -> Any:
    if not isinstance(body, (str, bytes)):
        return body
    if len(body) > LARGEST_BODY:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _until_reset(values: Mapping[str, list[str]], now: Instant) -> int | None:
    """Return the time until the last of the exhausted limits is reset."""
    waits = [
        _reset(values, (reset,), now)
        for remaining, reset in _RESETS
        if _remaining(values, (remaining,)) == 0
    ]
    return _longest(waits)


_KINDS = ("requests", "tokens", "input-tokens", "output-tokens")
_RESETS = (
    *((f"x-ratelimit-remaining-{k}", f"x-ratelimit-reset-{k}") for k in _KINDS),
    *(
        (f"anthropic-ratelimit-{k}-remaining", f"anthropic-ratelimit-{k}-reset")
        for k in _KINDS
    ),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("ratelimit-remaining", "ratelimit-reset"),
)


def _requests(values: Mapping[str, list[str]], now: Instant) -> int | None:
    for family in ("x-ratelimit-{}-requests", "anthropic-ratelimit-requests-{}"):
        limit = _count(values, family.format("limit"))
        if limit:
            left = _count(values, family.format("remaining"))
            span = _reset(values, (family.format("reset"),), now)
            return _a_minute(limit, left, span)
    return None


def _a_minute(limit: int, left: int | None, span: int | None) -> int:
    """Convert a limit to one per minute: a distant reset means a limit per day."""
    if left is None or span is None or span <= LONGEST_MINUTE:
        return limit
    # It may fill gradually or all at once at the reset: providers do not say which.
    most = max(left, limit - left)
    return max(1, min(limit, most * 60_000 // span))


def _tokens(values: Mapping[str, list[str]]) -> int | None:
    names = ("x-ratelimit-limit-tokens", "anthropic-ratelimit-tokens-limit")
    return next((found for n in names if (found := _count(values, n))), None)


def _count(values: Mapping[str, list[str]], name: str) -> int | None:
    return _remaining(values, (name,))


def _remaining(values: Mapping[str, list[str]], names: Iterable[str]) -> int | None:
    texts = [text for name in names for text in values.get(name, ())]
    counts = [int(float(text)) for text in texts if _NUMBER.fullmatch(text)]
    return min((min(count, LARGEST_LIMIT) for count in counts), default=None)


def _reset(
    values: Mapping[str, list[str]], names: Iterable[str], now: Instant
) -> int | None:
    texts = [text for name in names for text in values.get(name, ())]
    return _longest([_first(_span(text), _later(text, now)) for text in texts])


def _later(text: str, now: Instant) -> int | None:
    """Read a span in seconds, an instant since the epoch, or a date."""
    if _NUMBER.fullmatch(text):
        number = float(text)
        if number >= EPOCH:
            return _bounded((number if number >= EPOCH_MS else number * 1000) - now)
        return _bounded(number * 1000)
    at = _date(text)
    return None if at is None else _bounded(at - now)


def _date(text: str) -> float | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text)
            aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return aware.timestamp() * 1000
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
    return None


def _span(text: str) -> int | None:
    """Read a span such as `6m0s`, `120ms` or `34.07s`."""
    match = _SPAN.fullmatch(text.strip())
    if not text.strip() or match is None:
        return None
    parts = {unit: value for unit, value in match.groupdict().items() if value}
    return _bounded(sum(float(value) * _UNITS[u] for u, value in parts.items()))


def _milliseconds(text: str, unit: int) -> int | None:
    return _bounded(float(text) * unit) if _NUMBER.fullmatch(text) else None


def _bounded(span: float) -> int:
    return math.ceil(min(max(span, 0.0), LONGEST_WAIT))


def _longest(waits: Iterable[int | None]) -> int | None:
    return max((wait for wait in waits if wait is not None), default=None)


def _first(*waits: int | None) -> int | None:
    return next((wait for wait in waits if wait is not None), None)
