"""The part of a store that keeps API keys and the log of administrators' acts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backburner.domain.auth.key import ApiKey
from backburner.domain.jobs.job import Instant


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what to which thing, and when."""

    at: Instant
    tenant: str
    actor: str
    action: str
    target: str
    request_id: str | None = None
    seq: int = 0
    """Its place in the log; the store gives it."""


class KeyStore(Protocol):
    """API keys, and a log that only grows."""

    async def add_key(self, key: ApiKey, entry: AuditEntry) -> None:
        """Store a key and tell of it in the log, durable; both or neither."""
        ...

    async def find_key(self, key_id: str) -> ApiKey | None:
        """Return a key, also one that is not good any more."""
        ...

    async def list_keys(self, tenant: str | None = None) -> Sequence[ApiKey]:
        """Return the keys of a tenant, or of all, the oldest first."""
        ...

    async def revoke_key(self, key_id: str, entry: AuditEntry) -> bool:
        """
        Revoke a key at the entry's time and tell of it in the log, durable.

        `False` if it was revoked before or is not the entry's tenant's: nothing is
        written then.
        """
        ...

    async def touch_key(
        self, key_id: str, *, now: Instant, unless_since: Instant
    ) -> None:
        """Note that a key was used, unless that was noted after `unless_since`."""
        ...

    async def record(self, entries: Sequence[AuditEntry]) -> None:
        """Add entries to the log, durable. None is ever changed or deleted."""
        ...

    async def audited(
        self, tenant: str, *, before: int | None, limit: int
    ) -> Sequence[AuditEntry]:
        """Return a tenant's entries with `seq` below `before`, newest first."""
        ...
