"""Signed URLs that give access to one content until they expire."""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Final
from urllib.parse import urlencode

from backburner.domain.jobs.job import Instant

USUAL: Final = timedelta(minutes=15)
LONGEST: Final = timedelta(hours=24)
NO_TERMS: Final[Mapping[str, str]] = MappingProxyType({})


class SignedUrls:
    """
    Signs and verifies URLs: method, path and expiry are signed together.

    The first secret signs, all of them verify. A URL names its secret (`kid`); removing
    a secret revokes the URLs that it signed.
    """

    def __init__(self, secrets: Sequence[str], now: Callable[[], Instant]) -> None:
        self._secrets = {_kid(secret): secret for secret in secrets}
        self._kid = _kid(secrets[0])
        self._now = now

    def sign(
        self,
        path: str,
        *,
        span: timedelta = USUAL,
        method: str = "GET",
        terms: Mapping[str, str] = NO_TERMS,
    ) -> tuple[str, Instant]:
        """
        Return a signed URL for one method and path, and its expiry.

        `terms` are query parameters that are signed with it.
        """
        seconds = min(span, LONGEST) // timedelta(seconds=1)
        expires = self._now() // 1000 + seconds
        text = _said(method, path, expires, terms)
        proof = {"exp": expires, "kid": self._kid}
        signature = _sign(self._secrets[self._kid], text)
        query = urlencode({**terms, **proof, "sig": signature})
        return f"{path}?{query}", expires * 1000

    def holds(
        self,
        method: str,
        path: str,
        *,
        exp: int,
        kid: str,
        sig: str,
        terms: Mapping[str, str] = NO_TERMS,
    ) -> bool:
        """Say whether a URL is signed by us for this request and has not expired."""
        secret = self._secrets.get(kid)
        if secret is None:
            return False
        is_signed = hmac.compare_digest(
            _sign(secret, _said(method, path, exp, terms)).encode(),
            sig.encode(errors="replace"),
        )
        now = self._now() // 1000
        return is_signed and now < exp <= now + LONGEST // timedelta(seconds=1)


def _said(method: str, path: str, expires: int, terms: Mapping[str, str]) -> str:
    """Return the signed text: one line per part."""
    lines = [method, path, str(expires)]
    return "\n".join([*lines, urlencode(sorted(terms.items()))] if terms else lines)


def _kid(secret: str) -> str:
    return hashlib.sha256(f"kid\n{secret}".encode()).hexdigest()[:8]


def _sign(secret: str, text: str) -> str:
    digest = hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
