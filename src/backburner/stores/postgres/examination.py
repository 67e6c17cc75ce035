"""Checks of a PostgreSQL server for `doctor`: its guarantees and its health."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from backburner.domain.errors import BackburnerError
from backburner.ports.clock import Clock
from backburner.ports.finding import Finding, Status
from backburner.ports.store import Store
from backburner.stores import schema
from backburner.stores.postgres import health
from backburner.stores.postgres.database import PIPES, POOL, Database

OLDEST = 130_000
"""The first version with the transaction functions that the event log needs."""
OLD_TRANSACTION_SECONDS = 300.0
SKEW_SECONDS = 1.0
PER_PROCESS = POOL + PIPES + 2
"""The connections of one process: its pool, pipes, notifier and heartbeat."""

# Read from the session, as a role or a database may have its own values.
SETTINGS = sa.text("""
SELECT current_setting('server_version'), current_setting('server_version_num')::int,
       current_setting('synchronous_commit'), current_setting('fsync'),
       current_setting('full_page_writes'), current_setting('autovacuum')
""")
# The server, the database and the role may each have a limit; -1 means none.
CONNECTIONS = sa.text("""
WITH clients AS (
  SELECT datname, usename FROM pg_stat_activity
   WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())
SELECT least(
  current_setting('max_connections')::int
    - current_setting('superuser_reserved_connections')::int
    - (SELECT count(*) FROM clients),
  (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database())
    - (SELECT count(*) FROM clients WHERE datname = current_database()),
  (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user)
    - (SELECT count(*) FROM clients WHERE usename = current_user))
""")
# An open snapshot prevents the removal of dead rows, whichever session holds it.
OLDEST_TRANSACTION = sa.text("""
SELECT pid, coalesce(nullif(application_name, ''), backend_type) AS holder,
       coalesce(state, 'unknown') AS state,
       extract(epoch FROM clock_timestamp() - xact_start)::float AS seconds
FROM pg_stat_activity
WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()
  AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)
ORDER BY xact_start
LIMIT 1
""")
NOW = sa.text("SELECT extract(epoch FROM clock_timestamp())::float * 1000")


class Settings(NamedTuple):
    """The server's settings that its guarantees depend on."""

    version: str
    number: int
    synchronous_commit: str
    fsync: str
    full_page_writes: str
    autovacuum: str


class Transaction(NamedTuple):
    """A transaction of another session."""

    pid: int
    holder: str
    state: str
    seconds: float


async def examine(
    store: Store, database: Database, clock: Clock
) -> AsyncIterator[Finding]:
    """Check the server, the schema and other sessions."""
    try:
        async with database.connection() as connection:
            found = await connection.run_sync(lambda c: [*_look(c, clock)])
        for finding in found:
            yield finding
        version = await store.version()
        yield schema.judged(version)
        if version is not None:
            await store.open()
            await store.ping()
            yield Finding(Status.PASS, "write", "a transaction was committed")
    except BackburnerError as error:
        fix = "see the line above, or correct BACKBURNER_STORE"
        yield Finding(Status.FAIL, "database", str(error), fix)
    finally:
        await store.close()


def _look(connection: sa.Connection, clock: Clock) -> Iterator[Finding]:
    yield from judged(Settings(*_row(connection, SETTINGS)))
    asked_at = clock.now()
    (theirs,) = _row(connection, NOW)
    answered_at = clock.now()
    yield skew((asked_at + answered_at) / 2 - theirs, (answered_at - asked_at) / 2)
    (left,) = _row(connection, CONNECTIONS)
    yield connections(left)
    oldest = connection.execute(OLDEST_TRANSACTION).first()
    yield transaction(None if oldest is None else Transaction(*oldest))
    yield from health.look(connection)


def _row(connection: sa.Connection, statement: sa.TextClause) -> tuple[Any, ...]:
    return tuple(connection.execute(statement).one())


def judged(settings: Settings) -> Iterator[Finding]:
    """Report on the server's settings."""
    yield _of(
        settings.number >= OLDEST,
        Finding(Status.FAIL, "server", settings.version, "use PostgreSQL 13 or newer"),
    )
    yield _of(
        settings.synchronous_commit != "off",
        Finding(
            Status.FAIL,
            "synchronous_commit",
            settings.synchronous_commit,
            "set it to on for this role or database: an accepted job could be lost",
        ),
    )
    yield _of(
        settings.fsync == "on",
        Finding(
            Status.FAIL,
            "fsync",
            settings.fsync,
            "set it to on: without it a power cut can destroy the database",
        ),
    )
    yield _of(
        settings.full_page_writes == "on",
        Finding(
            Status.WARN,
            "full_page_writes",
            settings.full_page_writes,
            "set it to on, unless the file system writes whole pages",
        ),
    )
    yield _of(
        settings.autovacuum == "on",
        Finding(
            Status.FAIL,
            "autovacuum",
            settings.autovacuum,
            "set it to on: finished jobs are never cleared away without it",
        ),
    )


def skew(milliseconds: float, doubt: float) -> Finding:
    """Report the difference between this machine's clock and the server's."""
    seconds = max(0.0, abs(milliseconds) - doubt) / 1000
    direction = "ahead of" if milliseconds > 0 else "behind"
    return _of(
        seconds <= SKEW_SECONDS,
        Finding(
            Status.WARN,
            "clock",
            f"{seconds:.1f} s {direction} the server's",
            "run a time service on both: delays and schedules are off by that much",
        ),
    )


def connections(left: int) -> Finding:
    """Report whether another of our processes can connect."""
    return _of(
        left >= PER_PROCESS,
        Finding(
            Status.WARN if left > 0 else Status.FAIL,
            "connections",
            f"{left} left, a process takes up to {PER_PROCESS}",
            "raise max_connections, or the limit of the database or role, "
            "or stop what holds them",
        ),
    )


def transaction(oldest: Transaction | None) -> Finding:
    """Report the oldest open transaction."""
    if oldest is None:
        return Finding(Status.PASS, "transactions", "none is open")
    return _of(
        oldest.seconds < OLD_TRANSACTION_SECONDS,
        Finding(
            Status.WARN,
            "transactions",
            f"the oldest is {oldest.seconds:.0f} s old: "
            f"pid {oldest.pid}, {oldest.holder}, {oldest.state}",
            f"end it with SELECT pg_terminate_backend({oldest.pid}): "
            "it delays VACUUM and readers of all events",
        ),
    )


def _of(is_well: bool, finding: Finding) -> Finding:
    return finding._replace(status=Status.PASS, fix="") if is_well else finding
