"""Errors of model answers, and how the JSON in an answer is found."""

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from http import HTTPStatus
from itertools import islice
from typing import Final, Literal, NoReturn

from backburner.domain.lanes.rate_limit_headers import REFUSED, has_no_quota

Purpose = Literal["chat", "embedding", "transcription", "vision"]
"""What a model is used for; each has a model of its own in the settings."""
NOT_CONFIGURED: Final = "AI_NOT_CONFIGURED"
"""The code of a call when no provider of models is set."""
MOST_STARTS: Final = 200
"""Of a text that looks like JSON all over, so many places are tried."""
SERVER_ERROR: Final = 500
CORRECTION: Final = "That answer cannot be used: "
"""How a question begins that shows a model its mistakes."""

_FENCE = re.compile(r"```[ \t]*(?:json)?[ \t]*\r?\n?", re.IGNORECASE)
_START = re.compile(r"[{\[]")
_BEFORE = re.compile(r"\s*(?=[{\[])")
_TOO_LONG = re.compile(
    r"context[ _]length|maximum context|too many tokens", re.IGNORECASE
)


class Trouble(StrEnum):
    """Why there is no answer to use; each is the code of the error that is raised."""

    RATE_LIMITED = "AI_RATE_LIMITED"
    UNAVAILABLE = "AI_UNAVAILABLE"
    """The provider has a fault, or cannot be reached."""
    TIMEOUT = "AI_TIMEOUT"
    BAD_ANSWER = "AI_BAD_ANSWER"
    """It said that all is well and sent something else than it promised."""
    REFUSED = "AI_REFUSED"
    """The model will not answer that."""
    REJECTED = "AI_REJECTED"
    """The provider does not take such a request."""
    UNAUTHORIZED = "AI_UNAUTHORIZED"
    """The provider does not accept the key, or not for this."""
    NO_QUOTA = "AI_QUOTA_EXHAUSTED"
    """The account has no credit left: waiting does not help, another provider may."""
    TOO_LONG = "AI_CONTEXT_TOO_LONG"
    NOT_PREPARED = "AI_MODEL_NOT_PREPARED"
    """The model is not on this machine yet; a command or a download brings it."""
    INVALID_JSON = "AI_INVALID_JSON"
    """Even corrected, there is no JSON in the answer."""
    SCHEMA_VIOLATION = "AI_SCHEMA_VIOLATION"
    """Even corrected, its JSON does not have the shape that was asked for."""

    @property
    def is_passing(self) -> bool:
        """Whether another try, or another provider, may do better."""
        return self in _PASSING

    @property
    def is_providers_own(self) -> bool:
        """Whether another provider may do better, though another try would not."""
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


def by_status(status: int, said: str = "") -> Trouble:
    """Say what a status means; `said` is the provider's own code and message."""
    if status == HTTPStatus.PAYMENT_REQUIRED or has_no_quota(said):
        return Trouble.NO_QUOTA
    if status in REFUSED:
        return Trouble.RATE_LIMITED
    if status >= SERVER_ERROR or status in _WAIT:
        return Trouble.UNAVAILABLE
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return Trouble.UNAUTHORIZED
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or _TOO_LONG.search(said):
        return Trouble.TOO_LONG
    return Trouble.REJECTED


def found_json(text: str) -> str:
    """
    Return the JSON in a model's answer: all of it, fenced, or amid prose.

    What is fenced goes before what is not, then the longest object or list counts.
    Raise `ValueError` if there is none.
    """
    whole = text.strip()
    try:
        _DECODER.decode(whole)
    except (ValueError, RecursionError):
        pass
    else:
        return whole
    for fence in islice(_FENCE.finditer(whole), MOST_STARTS):
        found = _value_at(whole, fence.end())
        if found is not None:
            return found
    longest = max(_values(whole), key=len, default=None)
    if longest is None:
        raise ValueError("the answer contains no JSON")
    return longest


def _values(text: str) -> Iterator[str]:
    """Yield what can be read as an object or a list, none within another."""
    at = 0
    for _ in range(MOST_STARTS):
        start = _START.search(text, at)
        if start is None:
            return
        found = _value_at(text, start.start())
        if found is not None:
            yield found
        at = start.start() + len(found or " ")


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
    raise ValueError(f"{constant} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)
