"""
API keys: what one looks like, and what its holder may do.

`bb_live_<id>_<secret>_<sum>`: the id finds it, the secret is 32 bytes, and by the sum a
slip of the pen is known without asking anybody, and a leaked key found by a scanner.
"""

import hashlib
import hmac
import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from backburner.domain.auth.access import Grant, possible
from backburner.domain.jobs.job import Instant, Owner

PREFIX: Final = "bb_live_"
ID_LENGTH: Final = 8
SECRET_BYTES: Final = 32
SECRET_LENGTH: Final = 43
SUM_LENGTH: Final = 6
LENGTH: Final = len(PREFIX) + ID_LENGTH + SECRET_LENGTH + SUM_LENGTH + 2

DEFAULT_USER: Final = "1"
"""Who a key without a user acts as, unless it names one by `users:act`."""

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ALPHABET: Final = frozenset(_DIGITS)


class Presented(NamedTuple):
    """A key as somebody shows it: well-formed, not yet known to be good."""

    id: str
    secret: str


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is kept: without its secret."""

    id: str
    name: str
    tenant: str
    user: str | None
    scopes: frozenset[str]
    digest: str
    created_at: Instant
    expires_at: Instant | None = None
    revoked_at: Instant | None = None
    last_used_at: Instant | None = None

    @property
    def grant(self) -> Grant:
        """
        What it gives to whoever shows it.

        A scope that such a key cannot hold counts for nothing: a key that was made
        before that rule may have one.
        """
        scopes = self.scopes & possible(self.tenant, self.user)
        return Grant(self.tenant, scopes, self.user, self.expires_at)

    @property
    def owner(self) -> Owner:
        """Who the key acts as when it names nobody."""
        return Owner(self.tenant, self.user or DEFAULT_USER)

    def is_good(self, now: Instant) -> bool:
        """Say whether it may be used now."""
        if self.revoked_at is not None:
            return False
        return self.expires_at is None or now < self.expires_at


def new_id(chance: int) -> str:
    """Write a number as a key's id."""
    return _base62(chance % 62**ID_LENGTH, ID_LENGTH)


def write(key_id: str, secret: bytes) -> str:
    """Write a whole key, as it is shown once."""
    text = _base62(int.from_bytes(secret), SECRET_LENGTH)
    body = f"{PREFIX}{key_id}_{text}"
    return f"{body}_{_sum(body)}"


def read(text: str) -> Presented | None:
    """Take a key apart; `None` if its form or its sum is wrong."""
    if len(text) != LENGTH or not text.isascii() or not text.startswith(PREFIX):
        return None
    body, _, given = text.rpartition("_")
    parts = body.removeprefix(PREFIX).split("_")
    if [len(part) for part in parts] != [ID_LENGTH, SECRET_LENGTH]:
        return None
    if not _ALPHABET.issuperset(parts[0] + parts[1]) or _sum(body) != given:
        return None
    return Presented(*parts)


def digest(pepper: bytes, shown: Presented) -> str:
    """Return what is kept of a secret: useless without the server's pepper."""
    text = f"{shown.id}_{shown.secret}".encode()
    return hmac.new(pepper, text, hashlib.sha256).hexdigest()


def is_same(kept: str, made: str) -> bool:
    """Compare two digests in a time that tells nothing."""
    return hmac.compare_digest(kept, made)


def _sum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), SUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
