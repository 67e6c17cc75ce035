"""
Webhook endpoints, secrets and signatures (Standard Webhooks 1.0).

An endpoint's secret is not stored: it is derived from the server's master key, the
endpoint's id and the version of the secret. A new version is a new secret. For a day,
messages are signed with the previous secret as well.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from backburner.domain.jobs.job import Instant, Owner

PREFIX: Final = "whsec_"
SCHEME: Final = "v1"
OVERLAP: Final = timedelta(hours=24)
"""How long the previous secret is still used for signing."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL that receives webhooks."""

    id: str
    owner: Owner
    url: str = field(repr=False)
    """It may contain a secret of the receiver, so it is shown to its owner only."""
    created_at: Instant
    version: int = 1
    """The version of the secret that signs."""
    rotated_at: Instant | None = None
    """When that version was introduced; the previous one is valid for a day more."""
    disabled_at: Instant | None = None
    disabled_reason: str | None = None
    seq: int = field(default=0, compare=False)
    """Its place among all; the store gives it."""


"""Its position in lists, assigned by the store."""


def secret(master: bytes, endpoint_id: str, version: int) -> str:
    """Return one version of an endpoint's secret, as it is shown to users."""
    named = f"webhook\n{endpoint_id}\n{version}".encode()
    key = hmac.new(master, named, hashlib.sha256).digest()
    return PREFIX + base64.b64encode(key).decode()


def rotate(endpoint: Endpoint, *, now: Instant) -> Endpoint:
    """
    Return the endpoint with a new secret.

    At most two secrets are valid: a second rotation within a day makes the oldest one
    invalid at once.
    """
    return replace(endpoint, version=endpoint.version + 1, rotated_at=now)


def live_versions(endpoint: Endpoint, now: Instant) -> tuple[int, ...]:
    """Return the versions of the secret that are valid now, newest first."""
    rotated = endpoint.rotated_at
    if rotated is None or now >= rotated + OVERLAP // timedelta(milliseconds=1):
        return (endpoint.version,)
    return (endpoint.version, endpoint.version - 1)


def sign(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """Sign a body with each secret; `timestamp` is in seconds."""
    content = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(f"{SCHEME},{_mac(secret, content)}" for secret in secrets)


def is_signed(
    secrets: Sequence[str],
    signatures: str,
    *,
    message_id: str,
    timestamp: int,
    body: bytes,
) -> bool:
    """Return whether a signature is by one of the secrets, in constant time."""
    expected = sign(secrets, message_id, timestamp, body).split()
    given = signatures.split()
    # A list, so that all are compared and the time reveals nothing.
    matches = [
        hmac.compare_digest(made.encode(), shown.encode(errors="replace"))
        for made in expected
        for shown in given
    ]
    return any(matches)


def _mac(secret: str, content: bytes) -> str:
    made = hmac.new(_key(secret), content, hashlib.sha256).digest()
    return base64.b64encode(made).decode()


def _key(secret: str) -> bytes:
    text = secret.removeprefix(PREFIX).rstrip("=")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ValueError(f"a webhook secret must be {PREFIX} followed by base64")
    return key
