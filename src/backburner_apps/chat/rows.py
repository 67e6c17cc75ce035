"""Inserts that two processes may do at the same time, on either database."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

_INSERT: Mapping[str, Any] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}


def insert(connection: Any, table: sa.Table) -> Any:
    """Return an INSERT that can be given `on_conflict_…`."""
    return _INSERT[connection.dialect.name](table)


def add(connection: Any, table: sa.Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless one has its key; say whether it was inserted."""
    statement = insert(connection, table).values(row).on_conflict_do_nothing()
    return bool(connection.execute(statement).rowcount == 1)
