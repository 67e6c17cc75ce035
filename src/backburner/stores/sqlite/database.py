"""
The file and its connections: durability, locking and the conversion of errors.

Every write transaction of every process holds an advisory lock on a file beside the
database. Checkpoints happen inside a commit, so none runs at the same time as a write:
the WAL-reset bug of SQLite before 3.51.3 cannot occur. A waiting writer is woken by the
kernel instead of polling, so "database is locked" does not occur either.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, StaticPool

from backburner.domain.errors import ConfigurationError, StoreFull, StoreUnavailable
from backburner.stores.move.notice import FENCED

OLDEST = (3, 38, 0)
"""The first version with `->>`."""
BUSY_TIMEOUT_MS = 10_000
JOURNALS = frozenset({"wal", "memory"})
"""The accepted journal modes; `memory` is that of simulations."""
CHECKPOINT_PAGES = 4_000
WAL_LIMIT_BYTES = 64 * 1024 * 1024


class WriteLock:
    """Allows one writer at a time, over all processes that share the file."""

    def __init__(self, path: Path | None) -> None:
        self._fd = None
        if path is not None:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> None:
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Database:
    """A SQLite file, or a database in memory for simulations."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        url = sa.URL.create("sqlite+pysqlite", database=str(path) if path else None)
        self._engine = sa.create_engine(
            url,
            poolclass=NullPool if path else StaticPool,
            connect_args={
                "isolation_level": None,
                "check_same_thread": False,
                "timeout": BUSY_TIMEOUT_MS / 1000,
                "cached_statements": 256,
            },
        )
        sa.event.listen(self._engine, "connect", self._prepare)
        sa.event.listen(self._engine, "begin", _begin)

    def connect(self) -> sa.Connection:
        """Open a connection; the caller closes it."""
        with translated(self.path):
            return self._engine.connect()

    def connect_reader(self) -> sa.Connection:
        """Open a read-only connection; each statement sees the latest commit."""
        connection = self.connect().execution_options(reads=True)
        driver(connection).execute("PRAGMA query_only = ON")
        return connection

    def lock(self) -> WriteLock:
        """Return a new lock object, to be held during each write transaction."""
        if self.path is None:
            return WriteLock(None)
        with translated():
            return WriteLock(self.path.with_name(self.path.name + "-lock"))

    def dispose(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _prepare(self, raw: sqlite3.Connection, _record: object) -> None:
        raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        mode = self._set_journal_mode(raw)
        if mode not in JOURNALS:
            raise ConfigurationError(
                f"BACKBURNER_STORE: SQLite cannot keep a write-ahead log here, its "
                f"journal mode is {mode!r}: put the database on a local file system"
            )
        raw.execute("PRAGMA synchronous = FULL")
        raw.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        raw.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        raw.execute("PRAGMA temp_store = MEMORY")
        raw.execute("PRAGMA cache_size = -65536")

    def _set_journal_mode(self, raw: sqlite3.Connection) -> str:
        """
        Switch to a write-ahead log; return the resulting journal mode.

        Changing the mode is a write for which SQLite does not wait: if another
        connection writes, it fails at once, whatever the busy timeout. So it takes the
        lock, and every holder of the lock must already be connected.
        """
        (mode,) = raw.execute("PRAGMA journal_mode").fetchone()
        if mode not in JOURNALS:
            with closing(self.lock()) as lock, lock:
                (mode,) = raw.execute("PRAGMA journal_mode = WAL").fetchone()
        return str(mode)


def driver(connection: sa.Connection) -> sqlite3.Connection:
    """Return the connection behind SQLAlchemy's, for frequent statements."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - tells the type checker
    return raw


def require_version() -> None:
    """Refuse a version of SQLite that is too old for the statements."""
    if sqlite3.sqlite_version_info < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise ConfigurationError(
            f"SQLite {sqlite3.sqlite_version} is too old: {wanted} or newer is needed"
        )


def _begin(connection: sa.Connection) -> None:
    if not connection.get_execution_options().get("reads"):
        driver(connection).execute("BEGIN IMMEDIATE")


@contextmanager
def translated(path: Path | None = None) -> Iterator[None]:
    """
    Convert the driver's errors; programming errors are not converted.

    `path` is the file that is being opened, which the messages then name.
    """
    try:
        yield
    except (sqlite3.Error, sa.exc.DBAPIError, OSError) as error:
        ours = as_ours(error, path)
        if ours is None:
            raise
        raise ours from error


def as_ours(error: Exception, path: Path | None = None) -> StoreUnavailable | None:
    """Convert an error to one of ours; `None` for a programming error."""
    shown = "the database" if path is None else str(path)
    if isinstance(error, sa.exc.DBAPIError):
        if not isinstance(error.orig, Exception):
            return None
        error = error.orig
    if isinstance(error, OSError):
        file = "the database file" if path is None else shown
        return StoreUnavailable(f"{file} cannot be used: {error.strerror}")
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return None
    if code & 0xFF == sqlite3.SQLITE_FULL:
        return StoreFull("the database has no space left")
    is_fenced = FENCED in str(error)
    if code & 0xFF in _UNAVAILABLE or is_fenced:
        problem = _PROBLEMS.get(code & 0xFF, f"cannot be used: {_name(error)}")
        return StoreUnavailable(FENCED if is_fenced else f"{shown} {problem}")
    return None


def is_unavailable(error: BaseException) -> bool:
    """Return whether the database itself failed; bodies may raise `OSError`, too."""
    cause = error.__cause__ if isinstance(error, StoreUnavailable) else error
    if not isinstance(cause, (sqlite3.Error, sa.exc.DBAPIError)):
        return False
    return as_ours(cause) is not None


_UNAVAILABLE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
    }
)


_PROBLEMS: Final = {
    sqlite3.SQLITE_NOTADB: "is not an SQLite database",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: it must be a file that may be read "
    "and written",
}
"""Problems with a file that its user can correct."""


def _name(error: Exception) -> str:
    return str(getattr(error, "sqlite_errorname", type(error).__name__))
