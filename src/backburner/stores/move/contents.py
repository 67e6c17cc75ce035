"""Rows of a store for a move: page by page, in the same order on both databases."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

import sqlalchemy as sa

from backburner.stores import tables
from backburner.stores.migrations import VERSION_TABLE
from backburner.stores.move import notice

LEFT_BEHIND: Final = {
    "permits": "calls that were under way ended with the workers that made them",
    "workers": "none is alive when a store is moved",
}
"""Tables that do not move, and why."""

EVERY: Final = tuple(
    tables.metadata.tables[name] for name in sorted(tables.metadata.tables)
)
MOVED: Final = tuple(table for table in EVERY if table.name not in LEFT_BEHIND)

Row = tuple[Any, ...]
Key = Sequence[Any]


def page(
    connection: sa.Connection, table: sa.Table, after: Key | None, limit: int
) -> list[Row]:
    """Return the rows that follow a key, in the order of their keys."""
    keys = [_ordered(connection, column) for column in table.primary_key]
    query = sa.select(table).order_by(*keys).limit(limit)
    if after is not None:
        begun = [
            sa.literal(value, column.type)
            for value, column in zip(after, table.primary_key, strict=True)
        ]
        query = query.where(sa.tuple_(*keys) > sa.tuple_(*begun))
    return [tuple(row) for row in connection.execute(query)]


def key(table: sa.Table, row: Row) -> Key:
    """Return the key of a row."""
    places = [column.name for column in table.columns]
    return [row[places.index(column.name)] for column in table.primary_key]


def _ordered(
    connection: sa.Connection, column: sa.Column[Any]
) -> sa.ColumnElement[Any]:
    """Order texts by their bytes, as SQLite does, whatever the server's collation."""
    if connection.dialect.name == "postgresql" and isinstance(column.type, sa.String):
        return sa.collate(column, "C")
    return column


def difference(
    table: sa.Table, ours: Sequence[Row], theirs: Sequence[Row]
) -> str | None:
    """Describe the first difference between two pages; `None` if they are equal."""
    if ours == theirs:
        return None
    for here, there in zip_longest(ours, theirs):
        if here != there:
            return _told(table, here, there, [key(table, row) for row in theirs])
    return None


def _told(
    table: sa.Table, here: Row | None, there: Row | None, known: Sequence[Key]
) -> str:
    if here is None or (there is not None and key(table, here) in known):
        assert there is not None  # noqa: S101 - one of them is a row
        if here is None or key(table, here) != key(table, there):
            return f"row {key(table, there)} is in the copy only"
        columns = [
            column.name
            for column, ours, theirs in zip(table.columns, here, there, strict=True)
            if ours != theirs
        ]
        return f"row {key(table, here)} differs in {', '.join(columns)}"
    return f"row {key(table, here)} is missing in the copy"


def there(connection: sa.Connection, among: Sequence[sa.Table]) -> Sequence[sa.Table]:
    """Return the tables that exist in the database."""
    known = {*sa.inspect(connection).get_table_names()}
    return [table for table in among if table.name in known]


def first_used(connection: sa.Connection, among: Sequence[sa.Table]) -> str | None:
    """Return the name of a table that has rows; `None` if all are empty or missing."""
    for table in there(connection, among):
        if connection.execute(
            sa.select(sa.literal(1)).select_from(table).limit(1)
        ).first():
            return table.name
    return None


def empty(connection: sa.Connection) -> None:
    """Delete all rows except the audit log, which is deleted with its table."""
    for table in EVERY:
        if table is not tables.audit:
            connection.execute(table.delete())


def delete_all(connection: sa.Connection, among: Sequence[sa.Table]) -> None:
    """Delete the rows of tables, referring tables first."""
    for table in reversed(there(connection, among)):
        connection.execute(table.delete())


def table_names(connection: sa.Connection) -> set[str]:
    """Return the names of all tables, except those of a move itself."""
    return {*sa.inspect(connection).get_table_names()} - {notice.NAME, VERSION_TABLE}


def index_names(connection: sa.Connection) -> set[str]:
    """Return SQLite's virtual tables and their shadow tables."""
    if connection.dialect.name != "sqlite":
        return set()
    kinds = "SELECT name FROM pragma_table_list WHERE type IN ('virtual', 'shadow')"
    return {*connection.execute(sa.text(kinds)).scalars()}


def analyse(connection: sa.Connection, among: Sequence[sa.Table]) -> None:
    """Update the planner's statistics on PostgreSQL."""
    if connection.dialect.name == "postgresql":
        quote = connection.dialect.identifier_preparer.quote
        names = ", ".join(quote(table.name) for table in among)
        connection.execute(sa.text(f"ANALYZE {names}"))


def counters(connection: sa.Connection, among: Sequence[sa.Table]) -> Mapping[str, int]:
    """
    Return the last number assigned in each table that numbers its rows.

    It may be above the highest row: numbers of deleted rows are not reused.
    """
    return {
        table.name: max(
            _last_drawn(connection, table, column), _highest(connection, column)
        )
        for table, column in _numbered(connection, among)
    }


def set_counters(
    connection: sa.Connection, among: Sequence[sa.Table], values: Mapping[str, int]
) -> None:
    """Make tables continue numbering after these numbers."""
    for table, column in _numbered(connection, among):
        value = values.get(table.name, 0)
        if connection.dialect.name == "sqlite":
            name = {"name": table.name}
            connection.execute(_FORGET, name)
            connection.execute(_REMEMBER, {**name, "seq": value})
        elif value:
            sequence = _sequence(connection, table, column)
            connection.execute(_ADVANCE, {"sequence": sequence, "value": value})


_FORGET: Final = sa.text("DELETE FROM sqlite_sequence WHERE name = :name")
_REMEMBER: Final = sa.text("INSERT INTO sqlite_sequence VALUES (:name, :seq)")
_ADVANCE: Final = sa.text("SELECT setval(CAST(:sequence AS regclass), :value)")
_DRAWN: Final = sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name")
_SEQUENCE: Final = sa.text("SELECT pg_get_serial_sequence(:name, :column)")


def _numbered(
    connection: sa.Connection, among: Sequence[sa.Table]
) -> Iterator[tuple[sa.Table, sa.Column[Any]]]:
    for table in among:
        column = table.autoincrement_column
        if column is not None and (
            connection.dialect.name == "sqlite"
            or _sequence(connection, table, column) is not None
        ):
            yield table, column


def _sequence(
    connection: sa.Connection, table: sa.Table, column: sa.Column[Any]
) -> str | None:
    quoted = connection.dialect.identifier_preparer.quote(table.name)
    asked = {"name": quoted, "column": column.name}
    found: str | None = connection.execute(_SEQUENCE, asked).scalar()
    return found


def _last_drawn(
    connection: sa.Connection, table: sa.Table, column: sa.Column[Any]
) -> int:
    if connection.dialect.name == "sqlite":
        return connection.execute(_DRAWN, {"name": table.name}).scalar() or 0
    sequence = _sequence(connection, table, column)
    value, is_called = connection.execute(
        sa.text(f"SELECT last_value, is_called FROM {sequence}")  # noqa: S608 - its name
    ).one()
    return int(value) if is_called else 0


def _highest(connection: sa.Connection, column: sa.Column[Any]) -> int:
    return connection.execute(sa.select(sa.func.max(column))).scalar() or 0
