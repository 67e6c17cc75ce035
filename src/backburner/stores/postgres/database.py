"""Connections to PostgreSQL, and the conversion of its errors."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import asyncpg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from backburner.domain.errors import (
    ConfigurationError,
    StoreFull,
    StoreUnavailable,
)
from backburner.stores.postgres.driver import Connection
from backburner.stores.shared.deferral import follow_savepoints

T = TypeVar("T")

CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 30.0
REPLAN_SECONDS = 5.0
"""How long a query plan is reused, in seconds."""
POOL = 5
"""Pooled connections for reads and bodies, per process."""
PIPES = 5
"""Further connections that each process keeps for its pipes."""

REFUSED: Final = f"[Errno {errno.ECONNREFUSED}]"

TRIES = 3
RETRIED = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""The server aborted the transaction: the same statement may succeed if repeated."""

SSL_MODES: Final = {
    "true": "require",
    "on": "require",
    "1": "require",
    "false": "disable",
    "off": "disable",
    "0": "disable",
}
"""Accepted values of `ssl=`, and the corresponding values of `sslmode=`."""
SSL_FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
UNSUPPORTED: Final = frozenset(
    {
        "channel_binding",
        "connect_timeout",
        "gssencmode",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "sslcompression",
        "sslnegotiation",
        "tcp_user_timeout",
    }
)
"""libpq parameters that the driver would mistake for server settings."""


def dsn_of(url: str) -> str:
    """
    Return a store's URL in the form that the driver parses, for all connections.

    The driver supports libpq's parameters (`sslmode`, `sslrootcert`, `sslcert`,
    `sslkey`, …). SQLAlchemy's `ssl=` is accepted as another name of `sslmode=`.
    """
    parsed = sa.make_url(url).set(drivername="postgresql")
    for name in sorted(UNSUPPORTED & set(parsed.query)):
        raise ConfigurationError(
            f"BACKBURNER_STORE: the URL's parameter {name!r} is not supported: "
            "remove it"
        )
    for name in SSL_FILES:
        named = parsed.query.get(name)
        if isinstance(named, str) and not Path(named).is_file():
            raise ConfigurationError(
                f"BACKBURNER_STORE: {name}={named}: there is no such file"
            )
    ssl_mode = parsed.query.get("ssl")
    if ssl_mode is not None:
        parsed = parsed.difference_update_query(["ssl"])
        if isinstance(ssl_mode, str) and "sslmode" not in parsed.query:
            mode = SSL_MODES.get(ssl_mode.lower(), ssl_mode)
            parsed = parsed.update_query_dict({"sslmode": mode})
    return parsed.render_as_string(hide_password=False)


async def dial(
    dsn: str,
    *,
    name: str = "backburner",
    timeout: float,  # noqa: ASYNC109 - the driver's own
    command_timeout: float | None = None,
    **settings: str,
) -> Any:
    """
    Open a connection of the driver; all connections are opened here.

    `name` is the `application_name` that the server shows; `settings` are set for the
    session. Raises `StoreUnavailable`, with the reason, if there is no server, host or
    database of this name.
    """
    try:
        return await asyncpg.connect(
            dsn,
            timeout=timeout,
            command_timeout=command_timeout,
            connection_class=Connection,
            server_settings={"application_name": name, **settings},
        )
    except ssl.SSLError:
        raise
    except (OSError, asyncpg.InvalidCatalogNameError) as error:
        raise StoreUnavailable(_unreached(dsn, error, timeout)) from error


def _unreached(dsn: str, error: Exception, seconds: float) -> str:
    """Return why no connection could be opened, without credentials."""
    parts = urlsplit(dsn)
    place = parts.netloc.rpartition("@")[2] or "its socket"
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        named = unquote(parts.path.removeprefix("/"))
        which = f"the database {named!r}" if named else "the user's database"
        return f"{which} does not exist: create it, or correct the URL"
    if isinstance(error, socket.gaierror):
        return f"the host {place.rpartition(':')[0] or place} is unknown"
    if isinstance(error, TimeoutError):
        return f"no answer from PostgreSQL at {place} within {seconds:g} s"
    # With several addresses, the error of asyncio has a text and no number.
    if isinstance(error, ConnectionRefusedError) or REFUSED in str(error):
        return f"connection refused; is PostgreSQL running at {place}?"
    reason = getattr(error, "strerror", None) or type(error).__name__
    return f"PostgreSQL at {place} cannot be reached: {reason}"


class Database:
    """One database: a pool of connections, and connections outside it."""

    def __init__(self, url: str) -> None:
        self.is_closed = False
        # A read that begins a transaction waits for the server three times.
        self.dsn = dsn_of(url)
        self._pool = _engine(
            self.dsn,
            limit=STATEMENT_SECONDS,
            isolation_level="AUTOCOMMIT",
            pool_size=POOL,
            max_overflow=0,
            pool_timeout=CONNECT_SECONDS,
        )
        sa.event.listen(self._pool.sync_engine, "checkout", _refuse_a_closed_one)
        # Readers that use every connection of the pool must not block a pipe.
        self._kept = _engine(self.dsn, limit=STATEMENT_SECONDS, poolclass=sa.NullPool)
        # Long operations must neither be cut off nor block others.
        self._alone = _engine(self.dsn, limit=None, poolclass=sa.NullPool)
        for engine in (self._pool, self._kept, self._alone):
            follow_savepoints(engine.sync_engine)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a pooled connection; a broken one is discarded."""
        self._check_open()
        async with translated(), self._pool.connect() as connection:
            await renew_plans(connection)
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection in a transaction that commits unless an error is raised."""
        async with self.connection() as connection:
            await connection.execution_options(isolation_level="READ COMMITTED")
            async with connection.begin():
                yield connection

    async def connect(self) -> AsyncConnection:
        """Open a connection outside the pool; the caller closes it."""
        self._check_open()
        async with translated():
            return await self._kept.connect()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection without a time limit, for migrations and bulk work."""
        self._check_open()
        async with translated(), self._alone.connect() as connection:
            yield connection

    @asynccontextmanager
    async def bulk(self) -> AsyncIterator[AsyncConnection]:
        """Run a transaction without a time limit on its own connection."""
        async with self.alone() as connection, connection.begin():
            yield connection

    def _check_open(self) -> None:
        if self.is_closed:
            raise StoreUnavailable("the store is closed")

    async def dispose(self) -> None:
        """Close all connections."""
        await self._pool.dispose()
        await self._kept.dispose()
        await self._alone.dispose()


def _engine(dsn: str, *, limit: float | None, **options: Any) -> AsyncEngine:
    creator = partial(
        dial,
        dsn,
        timeout=CONNECT_SECONDS,
        command_timeout=limit,
        jit="off",
    )
    return create_async_engine(
        "postgresql+asyncpg://", async_creator=creator, **options
    )


def _refuse_a_closed_one(connection: Any, _record: Any, _proxy: Any) -> None:
    """Replace a closed connection: SQLAlchemy does not notice the driver's errors."""
    if connection.driver_connection.is_closed():
        raise sa.exc.DisconnectionError("the connection was closed meanwhile")


async def driver(connection: AsyncConnection) -> Any:
    """Return the asyncpg connection behind SQLAlchemy's, for frequent statements."""
    raw = await connection.get_raw_connection()
    return raw.driver_connection


async def renew_plans(connection: AsyncConnection) -> None:
    """
    Make the session plan old prepared statements again.

    A plan is kept until the tables are analysed again. One that was made when they were
    known to be empty reads them completely, however large they are by then.
    """
    assert connection.sync_connection is not None  # noqa: S101 - tells the type checker
    notes = connection.sync_connection.info
    now = asyncio.get_running_loop().time()
    if now - notes.setdefault("planned", now) >= REPLAN_SECONDS:
        await (await driver(connection)).execute("DISCARD PLANS")
        notes["planned"] = now


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Convert the driver's errors; programming errors are not converted."""
    try:
        yield
    except Exception as error:
        ours = as_ours(error)
        if ours is None or ours is error:
            raise
        raise ours from error


def as_ours(error: BaseException) -> StoreUnavailable | None:
    """Convert an error to one of ours; `None` for a programming error."""
    if isinstance(error, StoreUnavailable):
        return error
    error = said_by_driver(error)
    if isinstance(error, asyncpg.DiskFullError):
        return StoreFull("the database has no space left")
    if isinstance(error, _REFUSED):
        reason = str(error).partition("\n")[0]
        return StoreUnavailable(f"the database cannot be used: {reason}")
    if isinstance(error, _UNAVAILABLE):
        return StoreUnavailable(f"the database cannot be used: {type(error).__name__}")
    return None


async def persist(act: Callable[[], Awaitable[T]]) -> T:
    """Run something that commits as a whole; retry it if the server aborted it."""
    for _ in range(TRIES - 1):
        try:
            return await act()
        except Exception as error:
            if not was_chosen(error):
                raise
    return await act()


def was_chosen(error: BaseException) -> bool:
    """Return whether the server aborted a transaction in favour of another."""
    cause = error.__cause__ if isinstance(error, StoreUnavailable) else error
    return cause is not None and isinstance(said_by_driver(cause), RETRIED)


def said_by_driver(error: BaseException) -> BaseException:
    """Return the driver's error behind one of SQLAlchemy's."""
    if isinstance(error, sa.exc.DBAPIError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return error


_REFUSED = (
    ssl.SSLError,
    asyncpg.ClientConfigurationError,
    asyncpg.InvalidAuthorizationSpecificationError,
)
"""Errors whose messages say what to correct, and contain no secrets."""
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
