"""
Pages of an application's lists, by cursor or by offset with a total.

A page by cursor reads only its own rows. A page by offset reads all rows before it, and
its total reads every row: use it only where a contract demands it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic import BaseModel, Field

from backburner.engine.transaction import View

MAX_OFFSET = 100_000


class CursorQuery(BaseModel):
    """`?limit=&cursor=`; a subclass may restrict both."""

    limit: int = Field(50, ge=1, le=200)
    cursor: str | None = Field(None, max_length=100)
    """The last key of the previous page."""


class CursorPage(NamedTuple):
    """A page, and the cursor of the next one; `None` after the last."""

    rows: Sequence[sa.Row[Any]]
    next_cursor: str | None


def cursor_page(
    view: View, rows: sa.Select[Any], key: sa.Column[str], asked: CursorQuery
) -> CursorPage:
    """
    Return a page of a statement, ordered by a column, descending.

    The column must be selected by the statement and unique, such as an id that begins
    with the time: then the newest rows come first.
    """
    if asked.cursor is not None:
        rows = rows.where(key < asked.cursor)
    more = rows.order_by(key.desc()).limit(asked.limit + 1)
    found = view.connection.execute(more).all()
    shown = found[: asked.limit]
    is_last = len(found) <= asked.limit
    return CursorPage(shown, None if is_last else str(getattr(shown[-1], key.name)))


class OffsetQuery(BaseModel):
    """`?limit=&offset=`; a subclass may restrict both."""

    limit: int = Field(20, ge=1, le=100)
    offset: int = Field(0, ge=0, le=MAX_OFFSET)


class OffsetPage(NamedTuple):
    """A page, and the total length of the list."""

    rows: Sequence[sa.Row[Any]]
    total: int
    limit: int
    offset: int

    @property
    def next_offset(self) -> int | None:
        """The offset of the next page; `None` after the last one."""
        end = self.offset + len(self.rows)
        return end if self.rows and end < self.total else None


def offset_page(view: View, rows: sa.Select[Any], asked: OffsetQuery) -> OffsetPage:
    """
    Return a page of an ordered statement, and the total number of rows.

    Call it in `Backburner.read` or in a transaction, so that both are consistent.
    """
    counted = sa.select(sa.func.count()).select_from(rows.order_by(None).subquery())
    total = view.connection.execute(counted).scalar_one()
    shown = view.connection.execute(rows.limit(asked.limit).offset(asked.offset)).all()
    return OffsetPage(shown, total, asked.limit, asked.offset)
