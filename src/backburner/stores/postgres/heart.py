"""A worker's heartbeat over PostgreSQL, with a loop and a connection of its own."""

import asyncio
from contextlib import suppress
from dataclasses import astuple
from typing import Any

from backburner.ports.store.workers import Vitals
from backburner.stores.postgres.database import dial, translated

BEAT_SECONDS = 2.0


class PostgresHeart:
    """Sends heartbeats from a thread that has no running event loop."""

    def __init__(self, dsn: str, statement: str) -> None:
        self._dsn = dsn
        self._statement = statement
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: Any = None

    def beat(self, worker: str, vitals: Vitals) -> bool:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(self._beat(worker, vitals))

    def close(self) -> None:
        if self._loop is not None:
            self._loop.run_until_complete(self._drop())
            self._loop.close()
            self._loop = None

    async def _beat(self, worker: str, vitals: Vitals) -> bool:
        async with translated():
            try:
                # Covers everything: a blocked heartbeat would hide an expired lease.
                async with asyncio.timeout(BEAT_SECONDS):
                    if self._connection is None:
                        self._connection = await self._connect()
                    found = await self._connection.fetch(
                        self._statement, worker, *astuple(vitals)
                    )
            except BaseException:
                await self._drop()
                raise
            return bool(found)

    async def _connect(self) -> Any:
        return await dial(
            self._dsn,
            name="backburner-heart",
            timeout=BEAT_SECONDS,
            synchronous_commit="off",
        )

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.terminate()
