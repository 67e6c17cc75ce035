"""Checks that a request comes from Discord: an Ed25519 signature and a timestamp."""

import re
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SIGNATURE_HEADER: Final = "x-signature-ed25519"
TIMESTAMP_HEADER: Final = "x-signature-timestamp"
TOLERANCE_SECONDS: Final = 300
"""The largest difference between the timestamp of a request and our clock."""

_SIGNATURE: Final = re.compile(r"[0-9a-fA-F]{128}")
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")


class Verifier:
    """Verifies requests that were signed for one application."""

    def __init__(self, public_key: str) -> None:
        """Take the public key of the application as 64 hexadecimal digits."""
        self._key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))

    def accepts(self, signature: str, timestamp: str, body: bytes) -> bool:
        """Return whether the signature belongs to this timestamp and body."""
        if not _SIGNATURE.fullmatch(signature) or not timestamp.isascii():
            return False
        try:
            self._key.verify(bytes.fromhex(signature), timestamp.encode() + body)
        except InvalidSignature:
            return False
        return True


def is_fresh(timestamp: str, now: int) -> bool:
    """Return whether a timestamp in seconds is near `now`, which is in milliseconds."""
    if not _TIMESTAMP.fullmatch(timestamp):
        return False
    return abs(now // 1000 - int(timestamp)) <= TOLERANCE_SECONDS
