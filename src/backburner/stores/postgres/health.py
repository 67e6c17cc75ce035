"""Checks for what slows PostgreSQL down: dead rows, empty indexes, locks, old WAL."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from backburner.ports.finding import Finding, Status
from backburner.stores.tables import metadata

MANY_DEAD: Final = 10_000
DEAD_SHARE: Final = 0.2
LARGE_INDEX_BYTES: Final = 8 * 1024 * 1024
ENTRY_BYTES: Final = 100
"""The approximate size of an entry of our indexes."""
FULL_SHARE: Final = 0.1
WAIT_SECONDS: Final = 1.0
MANY_LOG_BYTES: Final = 1024**3

TABLES: Final = sa.text("""
SELECT s.relname, n_live_tup, n_dead_tup,
       coalesce(greatest(last_vacuum, last_autovacuum)::timestamp(0)::text, 'never'),
       array_to_string(reloptions, ',') ~ 'autovacuum_enabled=(false|off|0|no)'
  FROM pg_stat_user_tables AS s JOIN pg_class AS c ON c.oid = s.relid
 WHERE s.relname = ANY (:names) AND pg_table_is_visible(s.relid)
 ORDER BY s.relname
""")
# As counted by the last vacuum: counting now would take as long as reading them.
INDEXES: Final = sa.text("""
SELECT indexrelname, relpages::bigint * current_setting('block_size')::int, reltuples
  FROM pg_stat_user_indexes AS s JOIN pg_class AS c ON c.oid = s.indexrelid
 WHERE s.relname = ANY (:names) AND pg_table_is_visible(s.relid)
   AND reltuples >= 0
 ORDER BY 2 DESC
""")
LOCKS: Final = sa.text("""
SELECT waits.pid, holds.pid,
       extract(epoch FROM clock_timestamp() - waits.query_start)::float,
       coalesce(nullif(holds.application_name, ''), holds.backend_type),
       coalesce(holds.state, 'unknown')
  FROM pg_stat_activity AS waits
  CROSS JOIN LATERAL unnest(pg_blocking_pids(waits.pid)) AS blocker (pid)
  JOIN pg_stat_activity AS holds ON holds.pid = blocker.pid
 WHERE waits.datname = current_database() AND waits.wait_event_type = 'Lock'
 ORDER BY waits.query_start
 LIMIT 1
""")
SLOTS: Final = sa.text("""
SELECT slot_name::text, active, coalesce(
  CASE WHEN pg_is_in_recovery() THEN 0
       ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) END, 0)::bigint
  FROM pg_replication_slots ORDER BY 3 DESC
""")
SIZE: Final = sa.text("SELECT pg_database_size(current_database())")


class Table(NamedTuple):
    """The number of dead rows of a table."""

    name: str
    live: int
    dead: int
    vacuumed_at: str
    is_left_alone: bool | None
    """Whether autovacuum is disabled for it."""


class Index(NamedTuple):
    """The size of an index, and the number of its entries."""

    name: str
    size: int
    entries: float


class Wait(NamedTuple):
    """A session that waits for another."""

    pid: int
    holder: int
    seconds: float
    program: str
    state: str


class Slot(NamedTuple):
    """A replication slot, and how much WAL is kept for it."""

    name: str
    is_active: bool
    kept: int


def look(connection: sa.Connection) -> Iterator[Finding]:
    """Run the checks that only read the catalogues."""
    names = {"names": list(metadata.tables)}
    tables = [Table(*row) for row in connection.execute(TABLES, names)]
    yield from vacuums(tables)
    yield bloat(tables)
    yield indexes([Index(*row) for row in connection.execute(INDEXES, names)])
    waits = connection.execute(LOCKS).first()
    yield locks(None if waits is None else Wait(*waits))
    yield from slots([Slot(*row) for row in connection.execute(SLOTS)])
    size: Any = connection.execute(SIZE).scalar_one()
    yield Finding(
        Status.PASS,
        "size",
        f"{size / 1024**2:.1f} MiB; check free disk space on the database server",
    )


def vacuums(tables: Sequence[Table]) -> Iterator[Finding]:
    """Report tables that are never vacuumed."""
    for table in tables:
        if table.is_left_alone:
            yield Finding(
                Status.FAIL,
                "vacuum",
                f"autovacuum is off for {table.name}",
                f"ALTER TABLE {table.name} RESET (autovacuum_enabled)",
            )


def bloat(tables: Sequence[Table]) -> Finding:
    """Report the table with the most dead rows, if there are many."""
    worst = max(tables, key=lambda table: table.dead, default=None)
    if worst is None:
        return Finding(Status.PASS, "bloat", "there are no tables yet")
    share = worst.dead / max(1, worst.live + worst.dead)
    message = (
        f"{worst.name}: {worst.dead:,} rows are dead, {share:.0%} of it; "
        f"last vacuumed {worst.vacuumed_at}"
    )
    if worst.dead < MANY_DEAD or share < DEAD_SHARE:
        return Finding(Status.PASS, "bloat", message)
    fix = (
        f"end old transactions, then VACUUM {worst.name}; see that autovacuum keeps up"
    )
    return Finding(Status.WARN, "bloat", message, fix)


def indexes(found: Sequence[Index]) -> Finding:
    """Report a large index that is almost empty."""
    for index in found:
        needed = index.entries * ENTRY_BYTES
        if index.size >= LARGE_INDEX_BYTES and needed < index.size * FULL_SHARE:
            return Finding(
                Status.WARN,
                "indexes",
                f"{index.name}: {index.size / 1024**2:.0f} MiB "
                f"for {index.entries:,.0f} entries",
                f"REINDEX INDEX CONCURRENTLY {index.name}",
            )
    return Finding(Status.PASS, "indexes", "none is large and almost empty")


def locks(wait: Wait | None) -> Finding:
    """Report which session blocks another."""
    if wait is None or wait.seconds < WAIT_SECONDS:
        return Finding(Status.PASS, "locks", "no session waits for long")
    return Finding(
        Status.WARN,
        "locks",
        f"pid {wait.pid} has waited {wait.seconds:.0f} s for "
        f"pid {wait.holder}, {wait.program}, {wait.state}",
        f"SELECT pg_terminate_backend({wait.holder}), or make it commit",
    )


def slots(found: Sequence[Slot]) -> Iterator[Finding]:
    """Report replication slots for which WAL accumulates."""
    troubled = [
        slot for slot in found if not slot.is_active or slot.kept > MANY_LOG_BYTES
    ]
    for slot in troubled:
        used = "is behind" if slot.is_active else "is not used"
        yield Finding(
            Status.WARN,
            "slots",
            f"{slot.name} {used}, {slot.kept / 1024**2:.0f} MiB of WAL are kept",
            f"start its reader, or SELECT pg_drop_replication_slot('{slot.name}')",
        )
    if not troubled:
        yield Finding(Status.PASS, "slots", "no slot keeps much WAL")
