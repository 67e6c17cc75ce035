"""Request headers, and the descriptions of response headers."""

import re
from typing import Annotated, Any, Final

from fastapi import Header
from starlette.requests import Request

from backburner.engine.submit.submission import MAX_KEY_LENGTH
from backburner.http.auth import Caller
from backburner.http.problems import MalformedRequest, request_id_of

# W3C Trace Context: version, trace, parent, flags. Version ff and zeros are invalid.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)

IfNoneMatch = Annotated[str | None, Header()]


def _header(description: str, kind: str = "string") -> dict[str, Any]:
    return {"description": description, "schema": {"type": kind}}


RETRY_AFTER: Final = {
    "Retry-After": _header("When to try again, in seconds.", "integer")
}
LOCATION: Final = {"Location": _header("Where it is.")}
REPLAYED: Final = {
    "Idempotency-Replayed": _header("`true`: the key was known; this is what it names.")
}
ETAG: Final = {"ETag": _header("Changes with it.")}
LINK: Final = {"Link": _header('The next page, `rel="next"`.')}

IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A repeat within 24 h is executed once and gets the same answer.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_KEY_LENGTH,
        "pattern": r"^[!#-~]+$",
    },
}


def key_of(request: Request) -> str | None:
    """Return the idempotency key: bare, or as a structured string."""
    keys = set(request.headers.getlist("idempotency-key"))
    if len(keys) > 1:
        raise MalformedRequest("the request has two different Idempotency-Key headers")
    if not keys:
        return None
    key = keys.pop()
    is_quoted = len(key) > 1 and key[0] == key[-1] == '"'
    return key[1:-1] if is_quoted else key


def traceparent_of(request: Request) -> str | None:
    """Return the caller's trace context, if it is well-formed."""
    value = request.headers.get("traceparent")
    return value if value is not None and _TRACEPARENT.fullmatch(value) else None


def origin(request: Request, caller: Caller) -> dict[str, Any]:
    """Return the options that all submissions of a request share."""
    return {
        "owner": caller.owner,
        "request_id": request_id_of(request),
        "traceparent": traceparent_of(request),
        "key": caller.key,
    }


def matches(if_none_match: str | None, etag: str) -> bool:
    """Return whether the caller's version is current (`If-None-Match`)."""
    if if_none_match is None:
        return False
    named = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in named or "*" in named
