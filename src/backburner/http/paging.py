"""
Pages by offset, with a total, for contracts that ask for them.

Each page reads all rows before it, and the total reads every row. Where a contract
leaves the choice, page by a cursor instead: `where id > last order by id limit n`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic import BaseModel, Field

from backburner.engine.transaction import View

MAX_OFFSET = 100_000


class OffsetQuery(BaseModel):
    """`?limit=&offset=`; a subclass may narrow both."""

    limit: int = Field(20, ge=1, le=100)
    offset: int = Field(0, ge=0, le=MAX_OFFSET)


class OffsetPage(NamedTuple):
    """A part of a list, and how long the list is."""

    rows: Sequence[sa.Row[Any]]
    total: int
    limit: int
    offset: int

    @property
    def next_offset(self) -> int | None:
        """Where the next page begins; `None` after the last one."""
        end = self.offset + len(self.rows)
        return end if self.rows and end < self.total else None


def offset_page(view: View, rows: sa.Select[Any], asked: OffsetQuery) -> OffsetPage:
    """
    Return a page of an ordered statement, and how many rows there are in all.

    Call it in `Backburner.read` or in a transaction: both numbers are of one instant.
    """
    counted = sa.select(sa.func.count()).select_from(rows.order_by(None).subquery())
    total = view.connection.execute(counted).scalar_one()
    shown = view.connection.execute(rows.limit(asked.limit).offset(asked.offset)).all()
    return OffsetPage(shown, total, asked.limit, asked.offset)
