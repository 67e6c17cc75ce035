"""Connections to PostgreSQL, and its errors in our words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from backburner.domain.errors import StoreFull, StoreUnavailable

CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 30.0
POOL = 5
"""Connections for reads and bodies, of each process."""
LANES = 4
"""Connections that each process keeps for itself besides."""

RETRIED = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""The server chose a victim: the same statement may well go through again."""


class Database:
    """One server's database: a pool that is lent from, and connections to keep."""

    def __init__(self, url: str) -> None:
        self.is_closed = False
        self._pool = _engine(
            url, pool_size=POOL, max_overflow=0, pool_timeout=CONNECT_SECONDS
        )
        sa.event.listen(self._pool.sync_engine, "checkout", _refuse_a_closed_one)
        # Readers that hold every connection of the pool must not stop a lane.
        self._kept = _engine(url, poolclass=sa.NullPool)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection for a while; a broken one is thrown away."""
        self._check_open()
        async with translated(), self._pool.connect() as connection:
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
    if isinstance(error, sa.exc.DBAPIError):
        cause = error.orig.__cause__ if error.orig is not None else None
        error = cause or error.orig or error
    if isinstance(error, asyncpg.DiskFullError):
        return StoreFull("the database has no room left")
    if isinstance(error, _UNAVAILABLE):
        return StoreUnavailable(f"the database cannot be used: {type(error).__name__}")
    return None


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
