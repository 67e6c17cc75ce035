"""What `doctor` finds wrong with a store, provoked for real."""

import asyncio
import secrets
import sqlite3
import subprocess
from contextlib import asynccontextmanager, closing
from types import SimpleNamespace

import asyncpg
import pytest

from backburner.blobs.filesystem import FileBlobs
from backburner.clock import SystemClock, SystemDice
from backburner.ports.faults import NoFaults
from backburner.ports.finding import FEW_BYTES, TOO_FEW_BYTES, Status, room
from backburner.stores.postgres.examination import PER_PROCESS
from backburner.stores.sqlite.examination import MANY_WAL_BYTES
from backburner.testing.doubles import FrozenClock
from tests.store.moving import a_store

MIB = 1024 * 1024
HOUR = 3_600_000
FULL_EVENTS = """
INSERT INTO events (job, n, type, at) SELECT 1, n, 'x', 0 FROM generate_series(1, {}) n
"""
FULL_SHARES = """
INSERT INTO shares (queue, priority, tenant, name, finish, taken)
SELECT repeat('q', 150) || n, 0, 't', n, 0, 0 FROM generate_series(1, 60000) n
"""


async def examined(url, clock=None):
    """Return what an examination finds, by name."""
    found = [f async for f in a_store(url).examine(clock or SystemClock())]
    assert [] == [f for f in found if (f.status is Status.PASS) != (f.fix == "")], (
        "whatever is wrong comes with its fix, and nothing else"
    )
    return {finding.name: finding for finding in found}


@asynccontextmanager
async def connected(url):
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def admin(migrated_url):
    async with connected(migrated_url) as connection:
        yield connection


async def test_a_sound_server_passes(migrated_url):
    found = await examined(migrated_url)
    looked_at = {"bloat", "indexes", "locks", "size", "clock", "connections"}

    assert {Status.PASS} == {found[name].status for name in looked_at}


async def test_a_table_full_of_dead_rows_is_named(migrated_url, admin):
    await admin.execute("ALTER TABLE events SET (autovacuum_enabled = false)")
    # Earlier tests use this table, too: autovacuum may have come by.
    await admin.execute(
        "SELECT pg_stat_reset_single_table_counters('events'::regclass)"
    )
    async with connected(migrated_url) as other:
        await other.execute(FULL_EVENTS.format(15_000))
        await other.execute("DELETE FROM events WHERE n > 100")
        # What a session has done is counted at the latest when it ends.
    found = await examined(migrated_url)
    await admin.execute("VACUUM events")
    await admin.execute("ALTER TABLE events RESET (autovacuum_enabled)")
    mended = await examined(migrated_url)

    assert Status.WARN is found["bloat"].status
    assert "events: 14,900 rows are dead" in found["bloat"].message
    assert "last vacuumed never" in found["bloat"].message
    assert "VACUUM events" in found["bloat"].fix
    assert Status.FAIL is found["vacuum"].status
    assert "ALTER TABLE events RESET (autovacuum_enabled)" == found["vacuum"].fix
    assert Status.PASS is mended["bloat"].status
    assert "vacuum" not in mended


async def test_an_index_that_is_almost_empty_is_named(migrated_url, admin):
    await admin.execute(FULL_SHARES)
    await admin.execute("VACUUM ANALYZE shares")
    full = (await examined(migrated_url))["indexes"]
    await admin.execute("DELETE FROM shares WHERE name <> '7'")
    await admin.execute("VACUUM shares")
    empty = (await examined(migrated_url))["indexes"]
    await admin.execute(empty.fix)
    mended = (await examined(migrated_url))["indexes"]

    assert Status.PASS is full.status, "a large one that is full is none"
    assert Status.WARN is empty.status
    assert "REINDEX INDEX CONCURRENTLY shares_pkey" == empty.fix
    assert Status.PASS is mended.status


async def test_who_keeps_others_waiting_is_named(migrated_url, admin):
    row = "INSERT INTO fronts VALUES ('q', 0, 1)"
    async with connected(migrated_url) as holder, connected(migrated_url) as waiter:
        await holder.execute("BEGIN")
        await holder.execute(row)
        waiting = asyncio.create_task(waiter.execute(row))
        pids = waiter.get_server_pid(), holder.get_server_pid()
        await admin.fetch(
            "SELECT pg_sleep(0.1) FROM generate_series(1, 12)", timeout=30
        )
        found = await examined(migrated_url)
        await holder.execute("ROLLBACK")
        await waiting
    mended = await examined(migrated_url)

    assert Status.WARN is found["locks"].status
    assert f"pid {pids[0]} has waited" in found["locks"].message
    assert f"for pid {pids[1]}, " in found["locks"].message
    assert f"pg_terminate_backend({pids[1]})" in found["locks"].fix
    assert Status.PASS is mended["locks"].status


async def test_a_slot_that_nobody_reads_is_named(migrated_url, admin):
    name = f"test_{secrets.token_hex(4)}"
    await admin.execute(f"SELECT pg_create_physical_replication_slot('{name}', true)")
    try:
        found = [
            finding
            async for finding in a_store(migrated_url).examine(SystemClock())
            if name in finding.message
        ]
    finally:
        await admin.execute(f"SELECT pg_drop_replication_slot('{name}')")

    assert [("slots", Status.WARN)] == [(f.name, f.status) for f in found]
    assert f"pg_drop_replication_slot('{name}')" in found[0].fix


OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1"
"""The test's own session, and the one that empties the database."""


async def test_a_database_with_few_connections_left_is_found(migrated_url, admin):
    name = migrated_url.rpartition("/")[2]
    limit = f'ALTER DATABASE "{name}" CONNECTION LIMIT '
    others = await admin.fetchval(OTHERS, name)
    await admin.execute(limit + f"{PER_PROCESS}")
    try:
        few = (await examined(migrated_url))["connections"]
        await admin.execute(limit + "1")
        none = (await examined(migrated_url))["connections"]
    finally:
        await admin.execute(limit + "-1")
    mended = (await examined(migrated_url))["connections"]

    assert (Status.WARN, Status.FAIL, Status.PASS) == (
        few.status,
        none.status,
        mended.status,
    )
    assert f"{PER_PROCESS - others} left" in few.message


async def test_a_clock_that_is_off_is_found(migrated_url):
    now = SystemClock().now()
    ahead = (await examined(migrated_url, FrozenClock(now + HOUR)))["clock"]
    behind = (await examined(migrated_url, FrozenClock(now - HOUR)))["clock"]

    assert Status.WARN is ahead.status is behind.status
    assert "ahead of the server's" in ahead.message
    assert "behind the server's" in behind.message


@pytest.fixture
async def file(path):
    """A file with the schema, kept out of memory's way."""
    await a_store(f"sqlite:///{path}").migrate()
    return path


async def test_a_log_that_a_reader_holds_is_found(file):
    url = f"sqlite:///{file}"
    with closing(sqlite3.connect(file)) as reader, closing(sqlite3.connect(file)) as w:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchone()
        w.execute("PRAGMA synchronous = OFF")
        for _ in range(MANY_WAL_BYTES // (8 * MIB) + 1):
            w.execute("INSERT INTO lanes VALUES (?, 1, 1, 1, 1, '')", ("x" * 8 * MIB,))
            w.execute("DELETE FROM lanes")
            w.commit()
        found = (await examined(url))["wal"]
    mended = (await examined(url))["wal"]

    assert Status.WARN is found.status
    assert "a reader stays open for long" in found.fix
    assert Status.PASS is mended.status


async def test_a_file_that_is_mostly_empty_is_found(file):
    url = f"sqlite:///{file}"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(
            "INSERT INTO lanes VALUES ('x', 1, 1, 1, 1, ?)", ("x" * 70 * MIB,)
        )
        connection.execute("DELETE FROM lanes")
        connection.commit()
    found = (await examined(url))["bloat"]
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("VACUUM")
    mended = (await examined(url))["bloat"]

    assert Status.WARN is found.status
    assert "VACUUM" in found.fix
    assert Status.PASS is mended.status


@pytest.mark.parametrize(
    ("free", "status"),
    [
        (FEW_BYTES, Status.PASS),
        (FEW_BYTES - 1, Status.WARN),
        (TOO_FEW_BYTES - 1, Status.FAIL),
    ],
)
def test_room_is_judged(free, status):
    finding = room("disk", free)

    assert status is finding.status
    assert (status is Status.PASS) == (finding.fix == "")


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """A disk of 50 MiB; where this user may have none, one that is said to be so."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["/bin/mount", "-t", "tmpfs", "-o", "size=50m", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        free = SimpleNamespace(free=50 * 2**20)
        monkeypatch.setattr("shutil.disk_usage", lambda _: free)
        yield folder
        return
    yield folder
    subprocess.run(["/bin/umount", str(folder)], check=True)


async def test_a_small_disk_is_found(small_disk):
    disk = (await examined(f"sqlite:///{small_disk}/jobs.db"))["disk"]
    [blobs] = FileBlobs(small_disk / "blobs", SystemDice(), NoFaults()).examine()

    assert [Status.FAIL, Status.FAIL] == [disk.status, blobs.status]
    assert "free disk space" in disk.fix
    assert [] == list(small_disk.iterdir()), "looking leaves nothing"


def test_a_blob_folder_that_cannot_be_written_is_found(tmp_path):
    (tmp_path / "file").write_text("no folder")
    [found] = FileBlobs(tmp_path / "file" / "blobs", SystemDice(), NoFaults()).examine()

    assert ("blobs", Status.FAIL) == (found.name, found.status)
    assert "BACKBURNER_BLOBS" in found.fix
