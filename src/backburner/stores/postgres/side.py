"""A PostgreSQL database as one side of a move."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from backburner.domain.errors import ConfigurationError
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.move import contents
from backburner.stores.move.contents import Row
from backburner.stores.postgres.database import Database, driver, said_by_driver
from backburner.stores.shared import roster
from backburner.stores.tables import metadata

T = TypeVar("T")

LARGEST = 2**31
"""The exclusive maximum of `integer` in PostgreSQL; SQLite's integers are larger."""


class PostgresSide:
    """A `Side` over one PostgreSQL database."""

    def __init__(
        self, database: Database, url: sa.URL, remove_dead_workers: str
    ) -> None:
        """`remove_dead_workers` is the statement that removes expired workers."""
        self._database = database
        self._url = url
        self._remove_dead_workers = remove_dead_workers

    @property
    def place(self) -> str:
        host, port = self._url.host or "localhost", self._url.port or 5432
        return f"postgresql://{host}:{port}/{self._url.database or ''}"

    async def read(self, body: Callable[[sa.Connection], T]) -> T:
        async with self._database.connection() as connection:
            return await connection.run_sync(body)

    async def transact(self, body: Callable[[sa.Connection], T]) -> T:
        async with self._database.transaction() as connection:
            return await connection.run_sync(body)

    async def fill(
        self,
        table: sa.Table,
        rows: Sequence[Row],
        note: Callable[[sa.Connection], None],
    ) -> None:
        async with self._database.transaction() as connection:
            # First, because the transaction begins with SQLAlchemy's first statement.
            await connection.run_sync(note)
            try:
                await _insert(connection, table, rows)
            except Exception as error:
                if not isinstance(said_by_driver(error), asyncpg.DataError):
                    raise
                raise ConfigurationError(_misfit(table, rows)) from error

    async def rework(self, body: Callable[[sa.Connection], T]) -> T:
        async with self._database.bulk() as connection:
            return await connection.run_sync(body)

    async def alive(self, lease: timedelta) -> Sequence[WorkerInfo]:
        span = lease // timedelta(milliseconds=1)

        def remove_dead_workers(connection: sa.Connection) -> Sequence[WorkerInfo]:
            connection.exec_driver_sql(self._remove_dead_workers, (span,))
            return roster.workers(connection)

        return await self.transact(remove_dead_workers)

    async def close(self) -> None:
        """Keep the connections, which belong to the store."""


async def _insert(
    connection: AsyncConnection, table: sa.Table, rows: Sequence[Row]
) -> None:
    names = [column.name for column in table.columns]
    if table.metadata is metadata:
        raw = await driver(connection)
        await raw.copy_records_to_table(table.name, records=rows, columns=names)
        return
    # SQLAlchemy converts values of all types, such as JSON, for the driver.
    await connection.execute(
        table.insert(), [dict(zip(names, row, strict=True)) for row in rows]
    )


def _misfit(table: sa.Table, rows: Sequence[Row]) -> str:
    """Describe the first row that SQLite accepts and PostgreSQL does not."""
    for row in rows:
        for column, value in zip(table.columns, row, strict=True):
            if not _fits(column, value):
                known = contents.key(table, row)
                return f"{table.name}: row {known} does not fit: {column.name}"
    return f"{table.name}: a row does not fit"


def _fits(column: sa.Column[Any], value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" not in value
    if isinstance(value, int) and not isinstance(column.type, sa.BigInteger):
        return -LARGEST <= value < LARGEST
    return True
