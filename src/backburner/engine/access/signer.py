"""
Signed tokens that carry their own content and expiry, for one purpose each.

`<kid>.<claims>.<signature>`. The purpose is signed but not written, so a token made for
one purpose is refused for every other one.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import orjson

from backburner.domain.jobs.job import Instant

MAX_TOKEN: Final = 2048
EXPIRES: Final = "exp"


class Signer:
    """
    Signs claims and reads them back.

    The first secret signs, all of them verify. A token names its secret (`kid`);
    removing a secret revokes what it signed.
    """

    def __init__(self, secrets: Sequence[str], now: Callable[[], Instant]) -> None:
        self._secrets = {_kid(secret): secret.encode() for secret in secrets}
        self._kid = _kid(secrets[0])
        self._now = now

    def sign(
        self, purpose: str, claims: Mapping[str, Any], span: timedelta
    ) -> tuple[str, Instant]:
        """Return a token with the claims, and its expiry."""
        expires = self._now() + span // timedelta(milliseconds=1)
        written = _encoded(orjson.dumps({**claims, EXPIRES: expires}))
        body = f"{self._kid}.{written}"
        return f"{body}.{self._signature(self._kid, purpose, body)}", expires

    def read(self, purpose: str, token: str) -> Mapping[str, Any] | None:
        """
        Return a token's claims.

        `None` if it is forged, for another purpose or expired.
        """
        body, _, signature = token.rpartition(".")
        kid, _, written = body.partition(".")
        if len(token) > MAX_TOKEN or not token.isascii() or kid not in self._secrets:
            return None
        made = self._signature(kid, purpose, body)
        if not hmac.compare_digest(made, signature):
            return None
        claims: Mapping[str, Any] = orjson.loads(_decoded(written))
        return claims if self._now() < claims[EXPIRES] else None

    def derive(self, purpose: str, token: str) -> str:
        """Return a secret value that is derived from a verified token."""
        return self._signature(token.partition(".")[0], purpose, token)

    def _signature(self, kid: str, purpose: str, text: str) -> str:
        signed = f"{purpose}\n{text}".encode()
        return _encoded(hmac.new(self._secrets[kid], signed, hashlib.sha256).digest())


def _kid(secret: str) -> str:
    return hashlib.sha256(f"kid\n{secret}".encode()).hexdigest()[:8]


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return binascii.a2b_base64(text.replace("-", "+").replace("_", "/") + "==")
