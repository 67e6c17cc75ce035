"""Reads concurrent with the writer: own connections, snapshots of committed data."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import sqlalchemy as sa

from backburner.stores.sqlite.database import Database, translated

T = TypeVar("T")

THREADS = 2


class Reader(Protocol):
    """Runs functions over a reading connection."""

    async def run(self, read: Callable[[sa.Connection], T]) -> T:
        """Return what `read` returns."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class ThreadReader:
    """A few threads, each with its own connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._local = threading.local()
        self._connections: list[sa.Connection] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="backburner-reader")

    async def run(self, read: Callable[[sa.Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._read, read)

    def close(self) -> None:
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()

    def _read(self, read: Callable[[sa.Connection], T]) -> T:
        with translated():
            return read(self._connection())

    def _connection(self) -> sa.Connection:
        try:
            connection: sa.Connection = self._local.connection
        except AttributeError:
            connection = self._database.connect_reader()
            self._local.connection = connection
            self._connections.append(connection)
        return connection


class InlineReader:
    """Reads on the event loop, for simulations."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    async def run(self, read: Callable[[sa.Connection], T]) -> T:
        await asyncio.sleep(0)  # noqa: TID251 - a point at which other tasks may run
        return read(self._connection)

    def close(self) -> None:
        """Do nothing: the connection belongs to the caller."""
