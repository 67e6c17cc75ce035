"""
The newest rows of those whose things are seen, without reading the rows of others.

An owner's rows are in the order of an index. A whole tenant's are not: a large tenant
is found among the newest rows of all, a small one by the index of its owners.
"""

from typing import Any

import sqlalchemy as sa

from backburner.domain.job import Owner, Tenant, Visibility

WINDOW = 1_000
"""How many of the newest numbers are looked at for rows of a tenant."""


def seen_by(view: Visibility, columns: Any) -> list[sa.ColumnElement[bool]]:
    """Say that a row belongs to those whose things are seen."""
    tenant: sa.ColumnElement[bool] = columns.tenant == view.tenant
    if isinstance(view, Owner):
        return [tenant, columns.user == view.user]
    return [tenant]


def seen_without_index(view: Visibility, columns: Any) -> list[sa.ColumnElement[bool]]:
    """Say the same where another index finds fewer rows than that of the owners."""
    tenant: sa.ColumnElement[bool] = columns.tenant.concat("") == view.tenant
    if isinstance(view, Owner):
        return [tenant, columns.user.concat("") == view.user]
    return [tenant]


def newest(
    connection: sa.Connection,
    query: sa.Select[Any],
    table: sa.Table,
    view: Visibility | None,
    limit: int,
    *,
    before: int | None = None,
) -> list[Any]:
    """Run a query for the newest rows that are seen, with numbers below `before`."""
    seq = table.c.seq
    if before is not None:
        query = query.where(seq < before)
    by_number = query.order_by(seq.desc()).limit(limit)
    if view is None:
        return list(connection.execute(by_number))
    if isinstance(view, Tenant):
        top = before or connection.execute(sa.select(sa.func.max(seq))).scalar() or 0
        near = by_number.where(seq >= top - WINDOW, *seen_without_index(view, table.c))
        rows = list(connection.execute(near))
        if len(rows) >= limit or top <= WINDOW:
            return rows
        return list(connection.execute(sorted_by_number(query, table, view, limit)))
    return list(connection.execute(by_number.where(*seen_by(view, table.c))))


def sorted_by_number(
    query: sa.Select[Any], table: sa.Table, view: Visibility, limit: int
) -> sa.Select[Any]:
    """Find all rows that are seen by the index of their owners, then sort them."""
    found = query.where(*seen_by(view, table.c))
    return found.order_by(unindexed(table).desc()).limit(limit)


def unindexed(table: sa.Table) -> sa.ColumnElement[int]:
    """Return the number, signed: rows are sorted by it, not walked through by it."""
    return sa.literal_column(f"+{table.name}.seq", sa.BigInteger)
