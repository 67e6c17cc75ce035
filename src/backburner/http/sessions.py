"""
Browser sessions: an API key, sent once, becomes a cookie that scripts cannot read.

The cookie identifies the key and is signed; nothing is stored. A session has the key's
permissions and ends when the key is revoked. Browsers also send the cookie with
requests from other sites, so a request that changes something must have the type
`application/json` and the session's CSRF token, which no other site can read.
"""

import hmac
import secrets
from datetime import timedelta
from typing import Final, NamedTuple

from starlette.requests import HTTPConnection

from backburner.domain.jobs.job import Instant
from backburner.engine.access.signer import Signer
from backburner.http.problems import CsrfRefused

SPAN: Final = timedelta(hours=12)
CSRF_HEADER: Final = "x-csrf-token"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SESSION: Final = "session"
_CSRF: Final = "csrf"
_KEY: Final = "key"


class Session(NamedTuple):
    """A browser that is logged in."""

    key: str
    """The id of the API key that it logged in with."""
    csrf: str
    """The token that requests must contain to change something."""
    expires_at: Instant


class Sessions:
    """Creates sessions, and finds the session of a request."""

    def __init__(self, signer: Signer, *, is_secure: bool) -> None:
        """`is_secure`: browsers send the cookie only over https."""
        self._signer = signer
        self._is_secure = is_secure
        # Browsers accept a cookie with this prefix only from, and for, this host.
        self.name = "__Host-backburner" if is_secure else "backburner"

    def open(self, key_id: str) -> tuple[Session, str]:
        """Return a new session and its `Set-Cookie` header."""
        claims = {_KEY: key_id, "id": secrets.token_hex(8)}
        token, expires_at = self._signer.sign(_SESSION, claims, SPAN)
        session = Session(key_id, self._signer.derive(_CSRF, token), expires_at)
        return session, self._cookie(token, SPAN // timedelta(seconds=1))

    def closing(self) -> str:
        """Return the `Set-Cookie` header that deletes the cookie."""
        return self._cookie("", 0)

    def find(self, connection: HTTPConnection) -> Session | None:
        """Return the valid session of a request, if any."""
        token = connection.cookies.get(self.name)
        claims = None if token is None else self._signer.read(_SESSION, token)
        if token is None or claims is None:
            return None
        csrf = self._signer.derive(_CSRF, token)
        return Session(claims[_KEY], csrf, claims["exp"])

    def _cookie(self, value: str, seconds: int) -> str:
        secure = "; Secure" if self._is_secure else ""
        return (
            f"{self.name}={value}; Path=/; Max-Age={seconds}; HttpOnly; "
            f"SameSite=Strict{secure}"
        )


def check_csrf(connection: HTTPConnection, session: Session) -> None:
    """Refuse a change that a page of another site may have sent."""
    if connection.scope.get("method", "GET") in SAFE:
        return
    media_type = connection.headers.get("content-type", "").partition(";")[0]
    if media_type.strip().lower() != "application/json":
        raise CsrfRefused("with a session, send Content-Type: application/json")
    shown = connection.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(session.csrf.encode(), shown.encode()):
        raise CsrfRefused("with a session, send its csrf_token as X-CSRF-Token")
