"""
API keys: their format, digests and validity.

Format: `bb_live_<id>_<secret>_<sum>`. The id identifies the key and the secret has 32
bytes. The checksum reveals typing errors without a look-up, and lets scanners recognise
leaked keys.
"""

import hashlib
import hmac
import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from backburner.domain.auth.access import DEFAULT_USER, Grant, possible
from backburner.domain.jobs.job import Instant, Owner

PREFIX: Final = "bb_live_"
ID_LENGTH: Final = 8
SECRET_BYTES: Final = 32
SECRET_LENGTH: Final = 43
SUM_LENGTH: Final = 6
LENGTH: Final = len(PREFIX) + ID_LENGTH + SECRET_LENGTH + SUM_LENGTH + 2

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ALPHABET: Final = frozenset(_DIGITS)


class Presented(NamedTuple):
    """A key as presented by a caller: well-formed but not verified yet."""

    id: str
    secret: str


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored: without its secret."""

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
        The permissions of the key.

        Scopes that such a key cannot hold are ignored: keys created before that rule
        may have them.
        """
        scopes = self.scopes & possible(self.tenant, self.user)
        return Grant(self.tenant, scopes, self.user, self.expires_at)

    @property
    def owner(self) -> Owner:
        """The owner that the key acts as by default."""
        return Owner(self.tenant, self.user or DEFAULT_USER)

    def is_good(self, now: Instant) -> bool:
        """Return whether the key is neither revoked nor expired."""
        return self.flaw(now) is None

    def flaw(self, now: Instant) -> str | None:
        """Return why the key is not valid; `None` if it is."""
        if self.revoked_at is not None:
            return "was revoked"
        has_expired = self.expires_at is not None and now >= self.expires_at
        return "has expired" if has_expired else None


def new_id(chance: int) -> str:
    """Encode a number as the id of a key."""
    return _base62(chance % 62**ID_LENGTH, ID_LENGTH)


def write(key_id: str, secret: bytes) -> str:
    """Return the full text of a key, which is shown only once."""
    text = _base62(int.from_bytes(secret), SECRET_LENGTH)
    body = f"{PREFIX}{key_id}_{text}"
    return f"{body}_{_sum(body)}"


def read(text: str) -> Presented | None:
    """Parse a key; return `None` if its format or checksum is wrong."""
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
    """Return the stored digest of a key, which is useless without the pepper."""
    text = f"{shown.id}_{shown.secret}".encode()
    return hmac.new(pepper, text, hashlib.sha256).hexdigest()


def is_same(kept: str, made: str) -> bool:
    """Compare two digests in constant time."""
    return hmac.compare_digest(kept, made)


def _sum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), SUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
