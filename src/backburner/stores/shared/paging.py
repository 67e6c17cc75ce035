"""
Pages of the newest rows of an owner, without reading the rows of others.

An owner's rows are in the order of an index. The rows of a whole tenant are not: those
of a large tenant are found among the newest rows of all, those of a small one by the
index of owners.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import sqlalchemy as sa

from backburner.domain.jobs.job import Owner, Tenant, Visibility

WINDOW = 1_000
"""How many of the newest rows are searched for those of a tenant."""


Restrict: TypeAlias = Callable[
    [sa.Connection, sa.Select[Any], Visibility],
    tuple[sa.Select[Any], sa.ColumnElement[int]],
]
"""Restricts a query to visible rows; returns it with the column to sort and page by."""


def seen_by(view: Visibility, columns: Any) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for rows that are visible."""
    tenant: sa.ColumnElement[bool] = columns.tenant == view.tenant
    if isinstance(view, Owner):
        return [tenant, columns.user == view.user]
    return [tenant]


def seen_without_index(view: Visibility, columns: Any) -> list[sa.ColumnElement[bool]]:
    """Return the same conditions, written so that the index of owners is not used."""
    tenant: sa.ColumnElement[bool] = columns.tenant.concat("") == view.tenant
    if isinstance(view, Owner):
        return [tenant, columns.user.concat("") == view.user]
    return [tenant]


def newest(  # noqa: PLR0913 - each is a part of one query
    connection: sa.Connection,
    query: sa.Select[Any],
    table: sa.Table,
    view: Visibility | None,
    limit: int,
    *,
    before: int | None = None,
    ascending: bool = False,
    restrict: Restrict | None = None,
) -> list[Any]:
    """
    Run a query for the newest visible rows with numbers below `before`.

    With `ascending`: the oldest rows with numbers above it. `restrict` finds them by
    another table than their own.
    """
    seq: sa.ColumnElement[int] = table.c.seq
    if view is None:
        return _walked(connection, query, seq, limit, before, ascending=ascending)
    if isinstance(view, Tenant):
        edge = sa.func.min(seq) if ascending else sa.func.max(seq)
        top = before or connection.execute(sa.select(edge)).scalar() or 0
        near = seq <= top + WINDOW if ascending else seq >= top - WINDOW
        some = query.where(near, *seen_without_index(view, table.c))
        rows = _walked(connection, some, seq, limit, before, ascending=ascending)
        if len(rows) >= limit or (top <= WINDOW and not ascending):
            return rows
    if restrict is None:
        visible, number = query.where(*seen_by(view, table.c)), seq
    else:
        visible, number = restrict(connection, query, view)
    if isinstance(view, Owner):
        return _walked(connection, visible, number, limit, before, ascending=ascending)
    # All rows of a tenant are found by the index of owners, then sorted.
    if before is not None:
        visible = visible.where(number > before if ascending else number < before)
    place = unindexed(table)
    ordered = visible.order_by(place if ascending else place.desc()).limit(limit)
    return list(connection.execute(ordered))


def _walked(
    connection: sa.Connection,
    query: sa.Select[Any],
    number: sa.ColumnElement[int],
    limit: int,
    before: int | None,
    *,
    ascending: bool,
) -> list[Any]:
    """Run a query in the order of an index."""
    if before is not None:
        query = query.where(number > before if ascending else number < before)
    order = number if ascending else number.desc()
    return list(connection.execute(query.order_by(order).limit(limit)))


def ends_of(connection: sa.Connection, table: sa.Table) -> tuple[int, int] | None:
    """Return the lowest and the highest number in a table; `None`: it is empty."""
    # Two queries: for one with both, SQLite reads the whole table.
    low, high = (
        sa.select(end(table.c.seq)).scalar_subquery()
        for end in (sa.func.min, sa.func.max)
    )
    row = connection.execute(sa.select(low, high)).one()
    return None if row[0] is None else (row[0], row[1])


def first_since(connection: sa.Connection, at: sa.Column[int], time: int) -> int:
    """
    Return the approximate number of the first row at or after a time, by bisection.

    Rows are numbered roughly in the order of the times in this column, which has no
    index. Returns the last number plus one if all rows are older, 0 without rows.
    """
    halving = _halving(at.table.name, at.name)
    return connection.execute(halving, {"time": time}).scalar() or 0


@cache
def _halving(table: str, at: str) -> sa.TextClause:
    middle = "(low + high) / 2"
    later = f"FROM {table} WHERE seq >= {middle} ORDER BY seq LIMIT 1"
    is_older = f"(SELECT {at} < :time {later})"
    return sa.text(f"""
WITH RECURSIVE halves (low, high) AS (
  SELECT (SELECT min(seq) FROM {table}), (SELECT max(seq) + 1 FROM {table})
  UNION ALL
  SELECT CASE WHEN {is_older} THEN {middle} + 1 ELSE low END,
         CASE WHEN {is_older} THEN high ELSE {middle} END
    FROM halves WHERE low < high
)
SELECT low FROM halves WHERE low >= high
""")  # noqa: S608 - names of the schema


def unindexed(table: sa.Table) -> sa.ColumnElement[int]:
    """Return the number with a sign, so that its index is not used for sorting."""
    return sa.literal_column(f"+{table.name}.seq", sa.BigInteger)
