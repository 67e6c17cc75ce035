"""
Changes the schema while other sessions hold locks.

A migration waits for a lock only for a few seconds at a time, because everything after
it queues behind it, and then tries again. The log and the error name the session that
blocks it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

import asyncpg
import sqlalchemy as sa

from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.ports.history import History
from backburner.ports.log import log
from backburner.stores import migrations
from backburner.stores.postgres.database import Database, driver, said_by_driver

LOCK_SECONDS: Final = 5.0
"""How long one attempt waits for a lock, and others wait behind it."""
PAUSE_SECONDS: Final = 1.0
"""The pause between two attempts, in which others can go on."""
PATIENCE_SECONDS: Final = 300.0
"""How long a migration keeps trying."""
LOOK_SECONDS: Final = 0.5
KEY: Final = 7203510
"""The key of the advisory lock that allows one migration at a time."""

SETTINGS: Final = f"""
SET application_name = 'backburner-migrate';
SET lock_timeout = {LOCK_SECONDS * 1000:.0f}
"""
BLOCKERS: Final = """
SELECT pid, coalesce(nullif(application_name, ''), backend_type) AS program, state,
       extract(epoch FROM clock_timestamp() - xact_start)::float AS seconds,
       left(regexp_replace(query, '\\s+', ' ', 'g'), 100) AS query
  FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids($1)) OR pid IN (
    SELECT pid FROM pg_locks
     WHERE locktype = 'advisory' AND objid = $2 AND granted AND pid <> $1
  )
 ORDER BY xact_start LIMIT 1
"""


class Blocker(NamedTuple):
    """A session that blocks another one."""

    pid: int
    program: str
    state: str | None
    seconds: float | None
    query: str

    def __str__(self) -> str:
        since = "" if self.seconds is None else f" for {self.seconds:.0f} s"
        return (
            f"pid {self.pid} ({self.program}, {self.state or 'unknown'}{since}, "
            f"query: {self.query})"
        )


class Busy(Exception):
    """Another process is migrating."""


async def migrate(
    database: Database, history: History = migrations.ENGINE
) -> tuple[str | None, str | None]:
    """Upgrade the schema; return the revisions before and after."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + PATIENCE_SECONDS
    watch = _Watch(database)
    async with database.connection() as connection:
        before = await connection.run_sync(migrations.current, history)
    while True:
        try:
            return before, await _try(database, watch, history)
        except Exception as error:
            if not _is_lock(error):
                raise
            if loop.time() + PAUSE_SECONDS >= ends:
                raise ConfigurationError(_given_up(watch.last)) from error
        await asyncio.sleep(PAUSE_SECONDS)  # noqa: TID251 - back-off


def _given_up(blocker: Blocker | None) -> str:
    problem = f"the schema could not be changed within {PATIENCE_SECONDS:.0f} s: "
    if blocker is None:
        return problem + "another session holds a lock; run `backburner migrate` again"
    return (
        f"{problem}{blocker} holds a lock. End that process, or run "
        f"SELECT pg_terminate_backend({blocker.pid}), then `backburner migrate` again"
    )


def _is_lock(error: Exception) -> bool:
    if isinstance(error, Busy):
        return True
    cause = error.__cause__ if isinstance(error, StoreUnavailable) else error
    return cause is not None and isinstance(
        said_by_driver(cause),
        asyncpg.LockNotAvailableError | asyncpg.DeadlockDetectedError,
    )


async def _try(database: Database, watch: "_Watch", history: History) -> str | None:
    async with database.alone() as connection:
        raw = await driver(connection)
        await raw.execute(SETTINGS)
        async with watch.over(raw.get_server_pid()):
            # Tried, not waited for: a waiting session has a snapshot, and building an
            # index concurrently waits for all snapshots.
            if not await raw.fetchval("SELECT pg_try_advisory_lock($1)", KEY):
                await watch.look()
                raise Busy
            return await connection.run_sync(_migrate, history)


def _migrate(connection: sa.Connection, history: History) -> str | None:
    migrations.upgrade_live(connection, history)
    return migrations.current(connection, history)


class _Watch:
    """Finds the session that blocks another one, over a second connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pid = 0
        self.last: Blocker | None = None

    @asynccontextmanager
    async def over(self, pid: int) -> AsyncIterator[None]:
        """Check a session repeatedly while the context lasts."""
        self._pid = pid
        task = asyncio.create_task(self._look_for_ever())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def look(self) -> None:
        """Record the blocking session, and log it if it is a new one."""
        with suppress(StoreUnavailable):
            async with self._database.connection() as connection:
                raw = await driver(connection)
                row = await raw.fetchrow(BLOCKERS, self._pid, KEY)
            if row is not None:
                self._note(Blocker(*row))

    def _note(self, blocker: Blocker) -> None:
        if self.last is None or self.last.pid != blocker.pid:
            log.warning(
                "migration waits for a lock",
                pid=blocker.pid,
                application=blocker.program,
                state=blocker.state,
            )
        self.last = blocker

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)  # noqa: TID251 - no event to wait for
            await self.look()
