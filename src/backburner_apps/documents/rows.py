"""All tables of `documents`, and inserts that two processes may run concurrently."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from backburner_apps.documents import chunk_tables

_INSERT: Mapping[str, Any] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}


def all_tables() -> Sequence[sa.Table]:
    """Return the tables of batches, files and chunks, for `backburner move`."""
    return chunk_tables.chunks.metadata.sorted_tables


def insert(connection: Any, table: sa.Table) -> Any:
    """Return the database's own INSERT, which has the methods `on_conflict_…`."""
    return _INSERT[connection.dialect.name](table)
