"""Reads beside the writer: their own connections, snapshots of what is committed."""

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
    """Runs a function over a reading connection."""

    async def run(self, read: Callable[[sa.Connection], T]) -> T:
        """Return what `read` returns."""
        ...

    def close(self) -> None:
        """Let go of the connections."""
        ...


class ThreadReader:
    """A few threads, each with a connection of its own."""

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
    """The same on the event loop, for a simulation."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    async def run(self, read: Callable[[sa.Connection], T]) -> T:
        await asyncio.sleep(0)  # noqa: TID251 - a place for others to come between
        return read(self._connection)

    def close(self) -> None:
        """Nothing of its own to let go."""
