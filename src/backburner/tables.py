"""Helpers for applications' own tables, in addition to SQLAlchemy."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from backburner.domain.errors import IdempotencyConflict
from backburner.domain.jobs.job import Instant, Owner
from backburner.engine.maintenance.erasure import erase_rows
from backburner.engine.submit.idempotency import IdempotencyKey
from backburner.engine.transaction import Transaction

__all__ = ["KEY_MS", "erase_rows", "insert", "key_table", "owned_by", "take_key"]

KEY_MS: Final = 24 * 60 * 60 * 1000
"""The lifetime of an idempotency key."""
_INSERT: Final[Mapping[str, Any]] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}


def insert(connection: Any, table: sa.Table) -> Any:
    """Return the database's own INSERT, which has the methods `on_conflict_…`."""
    return _INSERT[connection.dialect.name](table)


def owned_by(table: sa.Table, owner: Owner) -> sa.ColumnElement[bool]:
    """Select the rows of a user, in a table with the columns `tenant` and `user`."""
    return sa.and_(table.c.tenant == owner.tenant, table.c.user == owner.user)


def key_table(name: str, metadata: sa.MetaData) -> sa.Table:
    """Declare a table for `take_key`; create it in one of your revisions."""
    return sa.Table(
        name,
        metadata,
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False, index=True),
        sa.Column("created_at", sa.BigInteger, nullable=False, index=True),
    )


@cache
def _take(table: str) -> sa.TextClause:
    return sa.text(
        f'INSERT INTO "{table}" '  # noqa: S608 - the name that a program gave
        '(tenant, "user", "key", digest, request_id, created_at) '
        "VALUES (:tenant, :user, :key, :digest, :request_id, :created_at) "
        "ON CONFLICT DO NOTHING"
    )


def take_key(
    tx: Transaction,
    keys: sa.Table,
    owner: Owner,
    repeat: IdempotencyKey,
    request_id: str,
    *,
    now: Instant,
) -> str:
    """
    Return the request of a user's idempotency key: the given one if the key is new.

    If two transactions use a key concurrently, the second waits for the commit of the
    first. A key that was used within a day with another body raises
    `IdempotencyConflict`. To free a key, delete the row of its request.
    """
    tx.connection.execute(keys.delete().where(keys.c.created_at <= now - KEY_MS))
    row = {"tenant": owner.tenant, "user": owner.user, "key": repeat.key}
    new = {"digest": repeat.digest, "request_id": request_id, "created_at": now}
    tx.connection.execute(_take(keys.name), {**row, **new})
    mine = sa.and_(owned_by(keys, owner), keys.c.key == repeat.key)
    found = tx.connection.execute(sa.select(keys).where(mine)).one()
    if found.digest != repeat.digest:
        raise IdempotencyConflict(
            "the Idempotency-Key was used within a day for another body"
        )
    return str(found.request_id)
