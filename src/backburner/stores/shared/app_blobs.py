"""Rows of applications' blobs, on both databases."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import sqlalchemy as sa

from backburner.domain.blobs.app_blob import AppBlob
from backburner.domain.jobs.job import Instant, Owner
from backburner.ports.store.transactions import Connection, Tx
from backburner.stores.shared.access import Access
from backburner.stores.tables import app_blobs as table

c = table.c

_ADD = sa.text("""
INSERT INTO app_blobs (id, app, tenant, "user", name, content_type, size, sha256,
                       created_at, expires_at, upload)
VALUES (:id, :app, :tenant, :user, :name, :content_type, :size, :sha256,
        :created_at, :expires_at, :upload)
ON CONFLICT (upload) DO NOTHING RETURNING seq
""")


class AppBlobRows(Access, Protocol):
    """The operations of `AppBlobStore`, on both databases."""

    def insert_blob(self, connection: Connection, blob: AppBlob) -> int | None:
        row = {
            "id": blob.id,
            "app": blob.app,
            "tenant": blob.owner.tenant,
            "user": blob.owner.user,
            "name": blob.name,
            "content_type": blob.content_type,
            "size": blob.size,
            "sha256": blob.sha256,
            "created_at": blob.created_at,
            "expires_at": blob.expires_at,
            "upload": blob.upload,
        }
        seq: int | None = connection.execute(_ADD, row).scalar()
        return seq

    def remove_blobs(
        self, connection: Connection, app: str, owner: Owner, ids: Collection[str]
    ) -> Sequence[str]:
        gone = sa.delete(table).where(*_of(app, owner), c.id.in_(sorted(ids)))
        return list(connection.execute(gone.returning(c.id)).scalars())

    async def find_blob(self, app: str, owner: Owner, blob_id: str) -> AppBlob | None:
        query = sa.select(table).where(*_of(app, owner), c.id == blob_id)
        return await self.read(lambda connection: _only(connection, query))

    async def find_upload(self, app: str, owner: Owner, upload: str) -> AppBlob | None:
        query = sa.select(table).where(*_of(app, owner), c.upload == upload)
        return await self.read(lambda connection: _only(connection, query))

    async def list_blobs(
        self, app: str, owner: Owner, *, after: int, limit: int
    ) -> Sequence[AppBlob]:
        query = sa.select(table).where(*_of(app, owner), c.seq > after)
        query = query.order_by(c.seq).limit(limit)
        return await self.read(lambda x: [_as_blob(row) for row in x.execute(query)])

    async def find_blobs(self, ids: Collection[str]) -> Sequence[AppBlob]:
        query = sa.select(table).where(c.id.in_(sorted(ids)))
        return await self.read(lambda x: [_as_blob(row) for row in x.execute(query)])

    async def remove_expired_blobs(self, now: Instant, *, limit: int) -> Sequence[str]:
        query = sa.select(c.id).where(c.expires_at <= now)
        query = query.order_by(c.expires_at).limit(limit)
        # Usually there are none, and checking needs no transaction.
        if not await self.read(lambda x: x.execute(query.limit(1)).first()):
            return []
        # Rows that another process is deleting are skipped.
        query = query.with_for_update(skip_locked=True)

        def remove(tx: Tx) -> Sequence[str]:
            old = list(tx.connection.execute(query).scalars())
            tx.connection.execute(sa.delete(table).where(c.id.in_(old)))
            return old

        return await self.transact(remove)


def _of(app: str, owner: Owner) -> Sequence[sa.ColumnElement[bool]]:
    return c.app == app, c.tenant == owner.tenant, c.user == owner.user


def _only(connection: Connection, query: sa.Select[Any]) -> AppBlob | None:
    row = connection.execute(query).one_or_none()
    return None if row is None else _as_blob(row)


def _as_blob(row: sa.Row[Any]) -> AppBlob:
    fields = row._asdict()
    owner = Owner(fields.pop("tenant"), fields.pop("user"))
    return AppBlob(owner=owner, **fields)
