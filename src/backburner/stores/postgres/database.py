"""Connections to PostgreSQL, and its errors in our words."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from backburner.domain.errors import StoreFull, StoreUnavailable

T = TypeVar("T")

CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 30.0
REPLAN_SECONDS = 5.0
"""How long a plan is good for."""
POOL = 5
"""Connections for reads and bodies, of each process."""
PIPES = 5
"""Connections that each process keeps for itself besides."""

TRIES = 3
RETRIED = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""The server chose a victim: the same statement may well go through again."""


class Database:
    """One server's database: a pool that is lent from, and connections to keep."""

    def __init__(self, url: str) -> None:
        self.is_closed = False
        # A read that begins a transaction waits for the server three times.
        self._pool = _engine(
            url,
            isolation_level="AUTOCOMMIT",
            pool_size=POOL,
            max_overflow=0,
            pool_timeout=CONNECT_SECONDS,
        )
        sa.event.listen(self._pool.sync_engine, "checkout", _refuse_a_closed_one)
        # Readers that hold every connection of the pool must not stop a pipe.
        self._kept = _engine(url, poolclass=sa.NullPool)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection for a while; a broken one is thrown away."""
        self._check_open()
        async with translated(), self._pool.connect() as connection:
            await renew_plans(connection)
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection in a transaction, which commits if nothing is raised."""
        async with self.connection() as connection:
            await connection.execution_options(isolation_level="READ COMMITTED")
            async with connection.begin():
                yield connection

    async def connect(self) -> AsyncConnection:
        """Open a connection outside the pool; the caller closes it."""
        self._check_open()
        async with translated():
            return await self._kept.connect()

    def _check_open(self) -> None:
        if self.is_closed:
            raise StoreUnavailable("the store is closed")

    async def dispose(self) -> None:
        """Close what is left open."""
        await self._pool.dispose()
        await self._kept.dispose()


def _engine(url: str, **options: Any) -> AsyncEngine:
    return create_async_engine(
        sa.make_url(url).set(drivername="postgresql+asyncpg"),
        connect_args={
            "timeout": CONNECT_SECONDS,
            "command_timeout": STATEMENT_SECONDS,
            "server_settings": {"application_name": "backburner", "jit": "off"},
        },
        **options,
    )


def _refuse_a_closed_one(connection: Any, _record: Any, _proxy: Any) -> None:
    """Have the pool open another; what the raw driver loses SQLAlchemy never sees."""
    if connection.driver_connection.is_closed():
        raise sa.exc.DisconnectionError("the connection was closed meanwhile")


async def driver(connection: AsyncConnection) -> Any:
    """Return the asyncpg connection that SQLAlchemy lends, for the hot statements."""
    raw = await connection.get_raw_connection()
    return raw.driver_connection


async def renew_plans(connection: AsyncConnection) -> None:
    """
    Have statements planned anew that were planned a while ago.

    A plan is kept until the tables are analysed again. One that was made when they
    were known to be empty reads them from end to end, however large they are by then.
    """
    assert connection.sync_connection is not None  # noqa: S101 - tells the type checker
    notes = connection.sync_connection.info
    now = asyncio.get_running_loop().time()
    if now - notes.setdefault("planned", now) >= REPLAN_SECONDS:
        await (await driver(connection)).execute("DISCARD PLANS")
        notes["planned"] = now


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Turn the driver's errors into ours; what is a bug stays what it is."""
    try:
        yield
    except Exception as error:
        ours = as_ours(error)
        if ours is None or ours is error:
            raise
        raise ours from error


def as_ours(error: BaseException) -> StoreUnavailable | None:
    """Say which of our errors this is; `None` for a programming fault."""
    if isinstance(error, StoreUnavailable):
        return error
    error = _said_by_driver(error)
    if isinstance(error, asyncpg.DiskFullError):
        return StoreFull("the database has no room left")
    if isinstance(error, _UNAVAILABLE):
        return StoreUnavailable(f"the database cannot be used: {type(error).__name__}")
    return None


async def persist(act: Callable[[], Awaitable[T]]) -> T:
    """Do something that commits as a whole; if the server chose it, again."""
    for _ in range(TRIES - 1):
        try:
            return await act()
        except Exception as error:
            told = error.__cause__ if isinstance(error, StoreUnavailable) else error
            if told is None or not isinstance(_said_by_driver(told), RETRIED):
                raise
    return await act()


def _said_by_driver(error: BaseException) -> BaseException:
    if isinstance(error, sa.exc.DBAPIError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return error


_UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.ConfigFileError,
    asyncpg.FatalPostgresError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InternalServerError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresConnectionError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.SnapshotTooOldError,
    asyncpg.TransactionRollbackError,
    sa.exc.TimeoutError,
    sa.exc.DisconnectionError,
)
