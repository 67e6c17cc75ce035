"""Inserts that two processes may run concurrently."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from backburner.tables import insert


def add(connection: Any, table: sa.Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless its key exists; return whether it was inserted."""
    statement = insert(connection, table).values(row).on_conflict_do_nothing()
    return bool(connection.execute(statement).rowcount == 1)
