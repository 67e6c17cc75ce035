"""Connections to PostgreSQL, and its errors in our words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from backburner.domain.errors import StoreFull, StoreUnavailable

CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 30.0
POOL = 5
"""Connections for reads and bodies; the hot lanes have their own besides."""
LANES = 4

RETRIED = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""The server chose a victim: the same statement may well go through again."""


class Database:
    """One server's database, reached through SQLAlchemy's pool."""

    def __init__(self, url: str) -> None:
        self.is_closed = False
        self._engine = create_async_engine(
            sa.make_url(url).set(drivername="postgresql+asyncpg"),
            pool_size=POOL + LANES,
            max_overflow=0,
            pool_timeout=CONNECT_SECONDS,
            pool_pre_ping=False,
            connect_args={
                "timeout": CONNECT_SECONDS,
                "command_timeout": STATEMENT_SECONDS,
                "server_settings": {"application_name": "backburner", "jit": "off"},
            },
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection for a while; a broken one is thrown away."""
        self._check_open()
        async with translated(), self._engine.connect() as connection:
            yield connection

    async def connect(self) -> AsyncConnection:
        """Open a connection; the caller closes it."""
        self._check_open()
        async with translated():
            return await self._engine.connect()

    def _check_open(self) -> None:
        if self.is_closed:
            raise StoreUnavailable("the store is closed")

    async def dispose(self) -> None:
        """Close what is left open."""
        await self._engine.dispose()


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
        if ours is None:
            raise
        raise ours from error


def as_ours(error: BaseException) -> StoreUnavailable | None:
    """Say which of our errors a foreign one is; `None` for a programming fault."""
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
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.PostgresSystemError,
    asyncpg.LockNotAvailableError,
    *RETRIED,
    sa.exc.TimeoutError,
    sa.exc.DisconnectionError,
)
