"""Errors of model calls, and extraction of JSON from a model's answer."""

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from http import HTTPStatus
from itertools import islice
from typing import Final, Literal, NoReturn

from backburner.domain.lanes.rate_limit_headers import REFUSED, has_no_quota

Purpose = Literal["chat", "embedding", "transcription", "vision"]
"""What a model is used for. The settings name one model for each purpose."""
NOT_CONFIGURED: Final = "AI_NOT_CONFIGURED"
"""The error code of a call when no model provider is configured."""
MOST_STARTS: Final = 200
"""How many positions in a text are tried as the start of JSON."""
SERVER_ERROR: Final = 500
CORRECTION: Final = "That answer cannot be used: "
"""The start of the follow-up prompt that lists the errors in a model's answer."""

_FENCE = re.compile(r"```[ \t]*(?:json)?[ \t]*\r?\n?", re.IGNORECASE)
_START = re.compile(r"[{\[]")
_BEFORE = re.compile(r"\s*(?=[{\[])")
_TOO_LONG = re.compile(
    r"context[ _]length|maximum context|too many tokens", re.IGNORECASE
)


class Trouble(StrEnum):
    """Why a call has no usable answer. Each value is the code of the error raised."""

    RATE_LIMITED = "AI_RATE_LIMITED"
    UNAVAILABLE = "AI_UNAVAILABLE"
    """The provider failed or cannot be reached."""
    TIMEOUT = "AI_TIMEOUT"
    BAD_ANSWER = "AI_BAD_ANSWER"
    """The provider reported success, but its response is malformed."""
    REFUSED = "AI_REFUSED"
    """The model declined to answer."""
    REJECTED = "AI_REJECTED"
    """The provider rejected the request as invalid."""
    UNAUTHORIZED = "AI_UNAUTHORIZED"
    """The provider rejected the API key, or the key lacks permission."""
    NO_QUOTA = "AI_QUOTA_EXHAUSTED"
    """The account has no credit left. Waiting does not help; another provider may."""
    TOO_LONG = "AI_CONTEXT_TOO_LONG"
    NOT_PREPARED = "AI_MODEL_NOT_PREPARED"
    """The model is not on this machine yet. It must be prepared or downloaded first."""
    INVALID_JSON = "AI_INVALID_JSON"
    """The answer contains no JSON, even after a correction."""
    SCHEMA_VIOLATION = "AI_SCHEMA_VIOLATION"
    """The JSON in the answer does not match the schema, even after a correction."""

    @property
    def is_passing(self) -> bool:
        """Whether a retry, or another provider, may succeed."""
        return self in _PASSING

    @property
    def is_providers_own(self) -> bool:
        """Whether another provider may succeed although a retry would not."""
        return self is Trouble.NO_QUOTA


_PASSING: Final = frozenset(
    {
        Trouble.RATE_LIMITED,
        Trouble.UNAVAILABLE,
        Trouble.TIMEOUT,
        Trouble.BAD_ANSWER,
    }
)
_WAIT: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY}
)


def by_status(status: int, detail: str = "") -> Trouble:
    """Classify an HTTP status; `detail` is the provider's error code and message."""
    if status == HTTPStatus.PAYMENT_REQUIRED or has_no_quota(detail):
        return Trouble.NO_QUOTA
    if status in REFUSED:
        return Trouble.RATE_LIMITED
    if status >= SERVER_ERROR or status in _WAIT:
        return Trouble.UNAVAILABLE
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return Trouble.UNAUTHORIZED
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or _TOO_LONG.search(detail):
        return Trouble.TOO_LONG
    return Trouble.REJECTED


def found_json(text: str) -> str:
    """
    Return the JSON in a model's answer: the whole text, a fenced block or a part.

    A fenced block takes precedence. Otherwise the longest object or array is returned.
    Raises `ValueError` if there is none.
    """
    whole = text.strip()
    try:
        _DECODER.decode(whole)
    except (ValueError, RecursionError):
        pass
    else:
        return whole
    for fence in islice(_FENCE.finditer(whole), MOST_STARTS):
        value = _value_at(whole, fence.end())
        if value is not None:
            return value
    longest = max(_values(whole), key=len, default=None)
    if longest is None:
        raise ValueError("the answer contains no JSON")
    return longest


def _values(text: str) -> Iterator[str]:
    """Yield the outermost objects and arrays that can be parsed."""
    at = 0
    for _ in range(MOST_STARTS):
        start = _START.search(text, at)
        if start is None:
            return
        value = _value_at(text, start.start())
        if value is not None:
            yield value
        at = start.start() + len(value or " ")


def _value_at(text: str, at: int) -> str | None:
    start = _BEFORE.match(text, at)
    if start is None:
        return None
    at = start.end()
    try:
        _, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return text[at:end]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)
