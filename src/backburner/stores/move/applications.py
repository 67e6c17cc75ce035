"""The tables of an application, as a move copies them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from backburner.domain.errors import ConfigurationError
from backburner.ports.history import History


class AppSchema(NamedTuple):
    """The schema of one application."""

    history: History
    tables: Sequence[sa.Table]
    """In an order in which rows can be inserted."""
    rebuild: Callable[[sa.Connection], object] | None = None
    """Rebuilds derived data such as a full-text index; repeatable."""


def movable(application: str, declared: Sequence[sa.Table]) -> Sequence[sa.Table]:
    """Return tables as they are copied: plain columns, referenced tables first."""
    metadata = sa.MetaData()
    return [_copied(application, t, metadata) for t in sa.schema.sort_tables(declared)]


def _copied(application: str, table: sa.Table, metadata: sa.MetaData) -> sa.Table:
    keys = list(table.primary_key)
    if not keys or not all(isinstance(k.type, sa.String | sa.Integer) for k in keys):
        raise ConfigurationError(
            f"application {application!r}: table {table.name!r} cannot be moved: it "
            "needs a primary key of texts or whole numbers"
        )
    columns = [_plain(column) for column in table.columns if column.computed is None]
    return sa.Table(table.name, metadata, *columns)


def _plain(column: sa.Column[Any]) -> sa.Column[Any]:
    kind = column.type
    if isinstance(kind, sa.JSON):
        # A missing value stays NULL instead of becoming the JSON text `null`.
        kind = sa.JSON(none_as_null=True)
    return sa.Column(
        column.name,
        kind,
        primary_key=column.primary_key,
        autoincrement=column.autoincrement,
    )
