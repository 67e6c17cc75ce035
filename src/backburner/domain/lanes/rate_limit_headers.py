"""
Reads the rate-limit headers of a provider's answer.

It comes from outside, so nothing of it is taken on trust: a wait is bounded, a number
that is none is ignored, and at most a few values of each kind are looked at.
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
"""An hour, in milliseconds: whoever was told to wait for longer tries once an hour."""
LARGEST_LIMIT: Final = 10**9
REFUSED: Final = frozenset({429, 529})
LONGEST_VALUE: Final = 100
MOST_VALUES: Final = 8
LARGEST_BODY: Final = 65_536
LONGEST_MINUTE: Final = 90_000
"""A reset that is farther off is not that of a minute's count."""
EPOCH: Final = 10**9
"""From here on a number is an instant in seconds, not a span."""
EPOCH_MS: Final = 10**12

Headers = Mapping[str, Any] | Iterable[tuple[Any, Any]]

_NUMBER = re.compile(r"\d{1,15}(\.\d{1,15})?")
_SPAN = re.compile(
    r"(?:(?P<d>\d{1,9})d)?(?:(?P<h>\d{1,9})h)?(?:(?P<m>\d{1,9})m(?!s))?"
    r"(?:(?P<s>\d{1,9}(?:\.\d{1,12})?)s)?(?:(?P<ms>\d{1,12}(?:\.\d{1,12})?)ms)?"
)
_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


class RateLimitInfo(NamedTuple):
    """What an answer tells of the lane that it came by."""

    is_refused: bool = False
    wait: int | None = None
    """How long to make no call, in milliseconds."""
    requests: int | None = None
    """How many calls a minute the provider says it allows."""
    tokens: int | None = None


SERVED: Final = RateLimitInfo()


def rate_limit_info(
    status: int, headers: Headers | None = None, body: Any = None, *, now: Instant
) -> RateLimitInfo:
    """Read an answer; `now` is the clock by which dates in it are understood."""
    said = _said(headers)
    is_refused = status in REFUSED and not has_no_quota(*_codes(body))
    wait = None
    if is_refused:
        wait = _first(
            _retry_after(said, now), _retry_delay(body), _until_reset(said, now)
        )
    elif _remaining(said, ("x-ratelimit-remaining", "ratelimit-remaining")) == 0:
        wait = _reset(said, ("x-ratelimit-reset", "ratelimit-reset"), now)
    return RateLimitInfo(is_refused, wait, _requests(said, now), _tokens(said))


def retry_after(headers: Headers, *, now: Instant) -> int | None:
    """Return after how many milliseconds an answer says to ask again, if it does."""
    return _retry_after(_said(headers), now)


def has_no_quota(*said: str) -> bool:
    """
    Say whether an account has no credit left, by the codes that a provider sent.

    Some tell of it by 429, as if it were for the rate: others may still be served.
    """
    return any(_NO_QUOTA.search(text) for text in said)


_NO_QUOTA = re.compile(
    r"\b(insufficient_quota|billing_hard_limit_reached|billing_not_active)\b"
)


def _codes(body: Any) -> list[str]:
    """Return the machine-readable codes of an error, as OpenAI and others send it."""
    found = _parsed(body)
    error = found.get("error", found) if isinstance(found, Mapping) else None
    if not isinstance(error, Mapping):
        return []
    values = (error.get(name) for name in ("code", "type"))
    return [value for value in values if isinstance(value, str)]


def _said(headers: Headers | None) -> dict[str, list[str]]:
    """Return values by lower-case name."""
    said: dict[str, list[str]] = {}
    if headers is None:
        return said
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    for name, value in pairs:
        values = said.setdefault(_text(name).lower(), [])
        text = _text(value).strip()
        if len(text) <= LONGEST_VALUE and len(values) < MOST_VALUES:
            values.append(text)
    return said


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _retry_after(said: Mapping[str, list[str]], now: Instant) -> int | None:
    exact = [_milliseconds(text, 1) for text in said.get("retry-after-ms", ())]
    return _first(
        _longest(exact),
        _longest([_later(text, now) for text in said.get("retry-after", ())]),
    )


def _retry_delay(body: Any) -> int | None:
    """Read Gemini's `error.details[].retryDelay`."""
    found = _parsed(body)
    if isinstance(found, list):
        found = found[0] if found else None
    error = found.get("error") if isinstance(found, Mapping) else None
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


def _until_reset(said: Mapping[str, list[str]], now: Instant) -> int | None:
    """Return when what is used up is there again; of several, the last."""
    waits = [
        _reset(said, (reset,), now)
        for remaining, reset in _RESETS
        if _remaining(said, (remaining,)) == 0
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


def _requests(said: Mapping[str, list[str]], now: Instant) -> int | None:
    for family in ("x-ratelimit-{}-requests", "anthropic-ratelimit-requests-{}"):
        limit = _count(said, family.format("limit"))
        if limit:
            left = _count(said, family.format("remaining"))
            span = _reset(said, (family.format("reset"),), now)
            return _a_minute(limit, left, span)
    return None


def _a_minute(limit: int, left: int | None, span: int | None) -> int:
    """Return a limit for a minute: some count over a day, as their reset gives away."""
    if left is None or span is None or span <= LONGEST_MINUTE:
        return limit
    # It fills bit by bit, or all at once when the span is over: nobody says which.
    most = max(left, limit - left)
    return max(1, min(limit, most * 60_000 // span))


def _tokens(said: Mapping[str, list[str]]) -> int | None:
    names = ("x-ratelimit-limit-tokens", "anthropic-ratelimit-tokens-limit")
    return next((found for n in names if (found := _count(said, n))), None)


def _count(said: Mapping[str, list[str]], name: str) -> int | None:
    return _remaining(said, (name,))


def _remaining(said: Mapping[str, list[str]], names: Iterable[str]) -> int | None:
    texts = [text for name in names for text in said.get(name, ())]
    counts = [int(float(text)) for text in texts if _NUMBER.fullmatch(text)]
    return min((min(count, LARGEST_LIMIT) for count in counts), default=None)


def _reset(
    said: Mapping[str, list[str]], names: Iterable[str], now: Instant
) -> int | None:
    texts = [text for name in names for text in said.get(name, ())]
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
            found = parse(text)
            aware = found if found.tzinfo else found.replace(tzinfo=UTC)
            return aware.timestamp() * 1000
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
    return None


def _span(text: str) -> int | None:
    """Read a span such as `6m0s`, `120ms` or `34.07s`."""
    found = _SPAN.fullmatch(text.strip())
    if not text.strip() or found is None:
        return None
    parts = {unit: value for unit, value in found.groupdict().items() if value}
    return _bounded(sum(float(value) * _UNITS[u] for u, value in parts.items()))


def _milliseconds(text: str, unit: int) -> int | None:
    return _bounded(float(text) * unit) if _NUMBER.fullmatch(text) else None


def _bounded(span: float) -> int:
    return math.ceil(min(max(span, 0.0), LONGEST_WAIT))


def _longest(waits: Iterable[int | None]) -> int | None:
    return max((wait for wait in waits if wait is not None), default=None)


def _first(*waits: int | None) -> int | None:
    return next((wait for wait in waits if wait is not None), None)
