"""A SQLite file as one side of a move."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TypeVar

import sqlalchemy as sa

from backburner.ports.clock import Clock
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.move.contents import Row
from backburner.stores.shared import roster
from backburner.stores.sqlite.database import Database, driver, translated

T = TypeVar("T")

CACHE_KIB = 8_192
"""The cache for a move, which reads the file only once."""


class SqliteSide:
    """A `Side` over one file, with a connection that reads and one that writes."""

    def __init__(
        self, database: Database, clock: Clock, remove_dead_workers: str
    ) -> None:
        """`remove_dead_workers` is the statement that removes expired workers."""
        self._database = database
        self._clock = clock
        self._remove_dead_workers = remove_dead_workers
        # Kept open: closing the last connection writes the whole log to the file.
        self._reading: sa.Connection | None = None
        self._writing: sa.Connection | None = None

    @property
    def place(self) -> str:
        return f"sqlite:///{self._database.path}"

    async def read(self, body: Callable[[sa.Connection], T]) -> T:
        return await asyncio.to_thread(self._read, body)

    async def transact(self, body: Callable[[sa.Connection], T]) -> T:
        return await asyncio.to_thread(self._transact, body)

    async def fill(
        self,
        table: sa.Table,
        rows: Sequence[Row],
        note: Callable[[sa.Connection], None],
    ) -> None:
        names = [column.name for column in table.columns]

        def insert(connection: sa.Connection) -> None:
            note(connection)
            connection.execute(
                table.insert(), [dict(zip(names, row, strict=True)) for row in rows]
            )

        await self.transact(insert)

    async def rework(self, body: Callable[[sa.Connection], T]) -> T:
        return await self.transact(body)

    async def alive(self, lease: timedelta) -> Sequence[WorkerInfo]:
        span = lease // timedelta(milliseconds=1)

        def remove_dead_workers(connection: sa.Connection) -> Sequence[WorkerInfo]:
            now = self._clock.monotonic()
            driver(connection).execute(self._remove_dead_workers, (now, span, now))
            return roster.workers(connection)

        return await self.transact(remove_dead_workers)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _read(self, body: Callable[[sa.Connection], T]) -> T:
        with translated():
            if self._reading is None:
                self._reading = _small(self._database.connect_reader())
            with self._reading.begin():
                return body(self._reading)

    def _transact(self, body: Callable[[sa.Connection], T]) -> T:
        with translated():
            if self._writing is None:
                self._writing = _small(self._database.connect())
            with (
                closing(self._database.lock()) as lock,
                lock,
                self._writing.begin(),
            ):
                return body(self._writing)

    def _close(self) -> None:
        kept = [c for c in (self._reading, self._writing) if c is not None]
        self._reading = self._writing = None
        if not kept:
            return
        with translated(), closing(self._database.lock()) as lock, lock:
            for connection in kept:
                connection.close()


def _small(connection: sa.Connection) -> sa.Connection:
    driver(connection).execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection
