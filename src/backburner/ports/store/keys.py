"""The contract for API keys and the audit log."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backburner.domain.auth.key import ApiKey
from backburner.domain.escaping import escaped
from backburner.domain.jobs.job import Instant


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the audit log: who did what to which object, and when."""

    at: Instant
    tenant: str
    actor: str
    action: str
    target: str
    request_id: str | None = None
    seq: int = 0
    """Its position in the log, assigned by the store."""

    def __post_init__(self) -> None:
        # Callers choose parts of these: no line break or control character may make
        # a reader of the log see anything else than this entry.
        for name in ("actor", "target"):
            object.__setattr__(self, name, escaped(getattr(self, name)))


class KeyStore(Protocol):
    """API keys and the audit log."""

    async def add_key(self, key: ApiKey, entry: AuditEntry) -> None:
        """Store a key and its audit entry, durably; both or neither."""
        ...

    async def find_key(self, key_id: str) -> ApiKey | None:
        """Return a key, also an expired or revoked one."""
        ...

    async def list_keys(self, tenant: str | None = None) -> Sequence[ApiKey]:
        """Return the keys of a tenant, or of all, the oldest first."""
        ...

    async def revoke_key(self, key_id: str, entry: AuditEntry) -> bool:
        """
        Revoke a key and store its audit entry, durably.

        `False` if it was revoked before or belongs to another tenant: nothing is
        written then.
        """
        ...

    async def touch_key(
        self, key_id: str, *, now: Instant, unless_since: Instant
    ) -> None:
        """Record that a key was used, unless a use after `unless_since` is recorded."""
        ...

    async def record(self, entries: Sequence[AuditEntry]) -> None:
        """Add entries to the audit log, durably. None is ever changed or deleted."""
        ...

    async def audited(
        self, tenant: str, *, before: int | None, limit: int
    ) -> Sequence[AuditEntry]:
        """Return a tenant's entries with `seq` below `before`, newest first."""
        ...
