"""Links that open one thing for a while, to whoever has them."""

import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final
from urllib.parse import urlencode

from backburner.domain.job import Instant

USUAL: Final = timedelta(minutes=15)
LONGEST: Final = timedelta(hours=24)


class Links:
    """
    Signs and checks: method, path and time together, so none can be swapped.

    The first secret signs, all of them check. A link names its secret (`kid`); taking
    a secret away revokes what it signed.
    """

    def __init__(self, secrets: Sequence[str], now: Callable[[], Instant]) -> None:
        self._secrets = {_kid(secret): secret for secret in secrets}
        self._kid = _kid(secrets[0])
        self._now = now

    def sign(self, path: str, *, span: timedelta = USUAL) -> tuple[str, Instant]:
        """Return the link to GET a path by, and when it ends."""
        seconds = min(span, LONGEST) // timedelta(seconds=1)
        expires = self._now() // 1000 + seconds
        signature = _sign(self._secrets[self._kid], "GET", path, expires)
        query = urlencode({"exp": expires, "kid": self._kid, "sig": signature})
        return f"{path}?{query}", expires * 1000

    def holds(self, method: str, path: str, *, exp: int, kid: str, sig: str) -> bool:
        """Say whether a link is ours, for this, and not over."""
        secret = self._secrets.get(kid)
        if secret is None:
            return False
        is_signed = hmac.compare_digest(
            _sign(secret, method, path, exp).encode(), sig.encode(errors="replace")
        )
        now = self._now() // 1000
        return is_signed and now < exp <= now + LONGEST // timedelta(seconds=1)


def _kid(secret: str) -> str:
    return hashlib.sha256(f"kid\n{secret}".encode()).hexdigest()[:8]


def _sign(secret: str, method: str, path: str, expires: int) -> str:
    said = f"{method}\n{path}\n{expires}".encode()
    digest = hmac.new(secret.encode(), said, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
