"""API keys and the audit log, on both databases."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import sqlalchemy as sa

from backburner.domain.auth.key import ApiKey
from backburner.domain.jobs.job import Instant
from backburner.ports.store.keys import AuditEntry
from backburner.ports.store.transactions import Connection
from backburner.stores.tables import api_keys as key_table
from backburner.stores.tables import audit as audit_table


class Recording(Protocol):
    """A transaction of either database."""

    @property
    def connection(self) -> Connection:
        """The connection."""
        ...


R = TypeVar("R", bound=Recording)
T = TypeVar("T")

k = key_table.c
a = audit_table.c

SELECT_KEYS = sa.select(
    k.id,
    k.name,
    k.tenant,
    k.user,
    k.scopes,
    k.digest,
    k.created_at,
    k.expires_at,
    k.revoked_at,
    k.last_used_at,
)
SELECT_ENTRIES = sa.select(
    a.at, a.tenant, a.actor, a.action, a.target, a.request_id, a.seq
)


def add(connection: Connection, key: ApiKey, entry: AuditEntry) -> None:
    """Store a key and its entry in the audit log."""
    row = {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "user": key.user,
        "scopes": "\n".join(sorted(key.scopes)),
        "digest": key.digest,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
    }
    connection.execute(sa.insert(key_table).values(row))
    record(connection, [entry])


def find(connection: Connection, key_id: str) -> ApiKey | None:
    """Return a key."""
    row = connection.execute(SELECT_KEYS.where(k.id == key_id)).one_or_none()
    return None if row is None else _as_key(row)


def listed(connection: Connection, tenant: str | None) -> list[ApiKey]:
    """Return keys, oldest first."""
    query = SELECT_KEYS.order_by(k.created_at, k.id)
    if tenant is not None:
        query = query.where(k.tenant == tenant)
    return [_as_key(row) for row in connection.execute(query)]


def revoke(connection: Connection, key_id: str, entry: AuditEntry) -> bool:
    """Revoke a tenant's key and add an audit entry, if the key is still valid."""
    query = sa.update(key_table).where(
        k.id == key_id, k.tenant == entry.tenant, k.revoked_at.is_(None)
    )
    is_changed = bool(connection.execute(query.values(revoked_at=entry.at)).rowcount)
    if is_changed:
        record(connection, [entry])
    return is_changed


def touch(
    connection: Connection, key_id: str, now: Instant, unless_since: Instant
) -> None:
    """Record that a key was used."""
    query = sa.update(key_table).where(
        k.id == key_id,
        sa.or_(k.last_used_at.is_(None), k.last_used_at <= unless_since),
    )
    connection.execute(query.values(last_used_at=now))


def record(connection: Connection, entries: Sequence[AuditEntry]) -> None:
    """Add entries to the audit log."""
    for entry in entries:
        row = {
            "at": entry.at,
            "tenant": entry.tenant,
            "actor": entry.actor,
            "action": entry.action,
            "target": entry.target,
            "request_id": entry.request_id,
        }
        connection.execute(sa.insert(audit_table).values(row))


def recorded(
    body: Callable[[R], T],
    entries: Sequence[AuditEntry],
    has_changed: Callable[[T], bool] = bool,
) -> Callable[[R], T]:
    """Return a body that adds entries to the audit log, if it has changed anything."""

    def run(tx: R) -> T:
        answer = body(tx)
        if has_changed(answer):
            record(tx.connection, entries)
        return answer

    return run


def audited(
    connection: Connection, tenant: str, before: int | None, limit: int
) -> list[AuditEntry]:
    """Return a page of the audit log, newest first."""
    query = SELECT_ENTRIES.where(a.tenant == tenant)
    if before is not None:
        query = query.where(a.seq < before)
    rows = connection.execute(query.order_by(a.seq.desc()).limit(limit))
    return [AuditEntry(*row) for row in rows]


def _as_key(row: sa.Row[tuple[object, ...]]) -> ApiKey:
    fields = row._asdict()
    return ApiKey(**(fields | {"scopes": frozenset(fields["scopes"].split("\n"))}))
