"""
Cross-origin requests (CORS): which origins may read responses.

Origins are listed exactly in `BACKBURNER_CORS_ORIGINS`. There is no wildcard, because
responses to a listed origin may carry credentials.
"""

import re
from collections.abc import Sequence
from typing import Final

from starlette.types import Scope, Send

Headers = list[tuple[bytes, bytes]]

METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
MAX_AGE: Final = b"600"
EXPOSED: Final = (
    b"Content-Disposition, ETag, Idempotency-Replayed, Link, Location, "
    b"Preference-Applied, RateLimit, RateLimit-Policy, Retry-After, X-Request-ID"
)
"""The response headers that pages may read in addition to the default ones."""
_NAMES: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z, -]{0,1000}")


class Cors:
    """Handles CORS for the listed origins."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)

    def headers_for(self, scope: Scope) -> Headers:
        """Return the CORS headers of a response."""
        if not self._origins:
            return []
        varies = [(b"vary", b"Origin")]
        origin = _header(scope, b"origin")
        if origin not in self._origins:
            return varies
        return [
            *varies,
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-expose-headers", EXPOSED),
        ]

    def is_preflight(self, scope: Scope) -> bool:
        """Return whether a request is a preflight from a page of a listed origin."""
        return (
            bool(self._origins)
            and scope.get("method") == "OPTIONS"
            and _header(scope, b"origin") in self._origins
            and _header(scope, b"access-control-request-method") != b""
        )


async def allow(scope: Scope, send: Send) -> None:
    """Respond to a preflight: everything it asks for is allowed."""
    asked = _header(scope, b"access-control-request-headers")
    headers = [
        (b"access-control-allow-methods", METHODS),
        (b"access-control-max-age", MAX_AGE),
        (b"vary", b"Access-Control-Request-Headers"),
    ]
    if asked and _NAMES.fullmatch(asked):
        headers.append((b"access-control-allow-headers", asked))
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _header(scope: Scope, name: bytes) -> bytes:
    found: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return found
