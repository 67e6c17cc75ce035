"""Webhook endpoints, on both databases."""

from collections.abc import Sequence
from typing import Any, Protocol

import sqlalchemy as sa

from backburner.domain.jobs.job import Instant, Owner
from backburner.domain.webhooks.webhook import Endpoint
from backburner.ports.store.transactions import Connection
from backburner.stores.shared.access import Access
from backburner.stores.tables import endpoints as table

c = table.c

_SELECT = sa.select(
    c.seq,
    c.id,
    c.tenant,
    c.user,
    c.url,
    c.created_at,
    c.version,
    c.rotated_at,
    c.disabled_at,
    c.disabled_reason,
)
_ADD = sa.text("""
INSERT INTO endpoints (id, tenant, "user", url, version, created_at)
VALUES (:id, :tenant, :user, :url, :version, :created_at)
ON CONFLICT (tenant, "user", url) DO NOTHING
""")


class Endpoints(Access, Protocol):
    """The operations of `EndpointStore`, on both databases."""

    async def add_endpoint(self, endpoint: Endpoint) -> Endpoint:
        # It usually exists: every delivery looks it up, and reading needs no commit.
        stored = await self.read(lambda connection: _like(connection, endpoint))
        if stored is not None:
            return stored
        return await self.transact(lambda tx: _add(tx.connection, endpoint))

    async def find_endpoint(self, endpoint_id: str) -> Endpoint | None:
        return await self.read(lambda connection: _find(connection, endpoint_id))

    async def endpoints(
        self, owner: Owner, *, before: int | None, limit: int
    ) -> Sequence[Endpoint]:
        return await self.read(lambda c: _listing(c, owner, before, limit))

    async def rotate_endpoint(self, rotated: Endpoint) -> bool:
        return await self._change(
            sa.update(table)
            .where(c.id == rotated.id, c.version == rotated.version - 1)
            .values(version=rotated.version, rotated_at=rotated.rotated_at)
        )

    async def disable_endpoint(
        self, endpoint_id: str, *, reason: str, now: Instant
    ) -> bool:
        return await self._change(
            sa.update(table)
            .where(c.id == endpoint_id, c.disabled_at.is_(None))
            .values(disabled_at=now, disabled_reason=reason)
        )

    async def enable_endpoint(self, endpoint_id: str) -> bool:
        return await self._change(
            sa.update(table)
            .where(c.id == endpoint_id, c.disabled_at.is_not(None))
            .values(disabled_at=None, disabled_reason=None)
        )

    async def delete_endpoint(self, endpoint_id: str) -> bool:
        return await self._change(sa.delete(table).where(c.id == endpoint_id))

    async def _change(self, statement: Any) -> bool:
        return await self.transact(
            lambda tx: bool(tx.connection.execute(statement).rowcount)
        )


def _add(connection: Connection, endpoint: Endpoint) -> Endpoint:
    row = {
        "id": endpoint.id,
        "tenant": endpoint.owner.tenant,
        "user": endpoint.owner.user,
        "url": endpoint.url,
        "version": endpoint.version,
        "created_at": endpoint.created_at,
    }
    connection.execute(_ADD, row)
    stored = _like(connection, endpoint)
    assert stored is not None  # noqa: S101 - just added, or it existed before
    return stored


def _like(connection: Connection, endpoint: Endpoint) -> Endpoint | None:
    query = _of(endpoint.owner).where(c.url == endpoint.url)
    return _only(connection.execute(query).one_or_none())


def _find(connection: Connection, endpoint_id: str) -> Endpoint | None:
    return _only(connection.execute(_SELECT.where(c.id == endpoint_id)).one_or_none())


def _only(row: sa.Row[Any] | None) -> Endpoint | None:
    return None if row is None else _as_endpoint(row)


def _listing(
    connection: Connection, owner: Owner, before: int | None, limit: int
) -> list[Endpoint]:
    query = _of(owner)
    if before is not None:
        query = query.where(c.seq < before)
    rows = connection.execute(query.order_by(c.seq.desc()).limit(limit))
    return [_as_endpoint(row) for row in rows]


def _of(owner: Owner) -> sa.Select[Any]:
    return _SELECT.where(c.tenant == owner.tenant, c.user == owner.user)


def _as_endpoint(row: sa.Row[Any]) -> Endpoint:
    fields = row._asdict()
    owner = Owner(fields.pop("tenant"), fields.pop("user"))
    return Endpoint(owner=owner, **fields)
