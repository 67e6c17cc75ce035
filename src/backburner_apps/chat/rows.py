"""Inserts with ON CONFLICT, which two processes may run concurrently."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

_INSERT: Mapping[str, Any] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}


def insert(connection: Any, table: sa.Table) -> Any:
    """Return the database's own INSERT, which has the methods `on_conflict_…`."""
    return _INSERT[connection.dialect.name](table)


def add(connection: Any, table: sa.Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless its key exists; return whether it was inserted."""
    statement = insert(connection, table).values(row).on_conflict_do_nothing()
    return bool(connection.execute(statement).rowcount == 1)
