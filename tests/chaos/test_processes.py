"""Processes under load for a while: what they hold, what a backup of them holds."""

import asyncio
import sqlite3
import subprocess
from pathlib import Path

import asyncpg
import psutil
import pytest
import sqlalchemy as sa
from breakable import effects

from backburner.adapters import find_store
from backburner.clock import SystemClock
from backburner.domain.job import JobState
from backburner.ports.faults import NoFaults
from backburner.testing.auditor import Ledger, audit
from tests.chaos.conftest import MANY as LIMITS
from tests.faults.conftest import cannot

MANY = {"BACKBURNER_CRASH_LIMIT": "1000"}
LARGEST_LOG = 64 * 1024 * 1024
GROWTH = 1.10


@pytest.fixture
async def busy(fleet, caller_of):
    """Two servers and two workers, and a load on both servers."""
    servers = [fleet.serve("breakable", "--no-worker", **MANY) for _ in range(2)]
    workers = [fleet.worker(**MANY) for _ in range(2)]
    await asyncio.gather(*(process.ready() for process in servers + workers))
    callers = [caller_of(server) for server in servers]
    for caller in callers:
        caller.begin()
    return callers


async def rest(callers):
    """Let the load end; return the kinds of answers there were."""
    for caller in callers:
        await caller.pause()
    return sorted({status for caller in callers for status, _ in caller.answers})


# --- 13: several processes write one file flat out ------------------------------------


@pytest.mark.experiment(13)
@pytest.mark.chaos
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_processes_that_write_flat_out_beside_a_held_snapshot_meet_no_lock(
    fleet, client, busy, experiment, ticks
):
    path = Path(fleet.url.removeprefix("sqlite:///"))
    async for _ in ticks(4, 1):
        pass
    reader = sqlite3.connect(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM jobs").fetchone()
    async for _ in ticks(8, 1):
        pass
    reader.close()
    async for _ in ticks(3, 1):
        pass
    seen = await rest(busy)
    await experiment.drain(client)

    experiment.found("every submit is answered 202", seen == [202], seen=seen)
    locked = "database is locked" in fleet.logs
    experiment.found("nobody meets a lock", not locked)
    size = path.with_name(f"{path.name}-wal").stat().st_size
    experiment.found("the log is cut back", size <= LARGEST_LOG, bytes=size)
    whole = await client.store.transact(
        lambda tx: tx.connection.exec_driver_sql("PRAGMA integrity_check").scalar()
    )
    experiment.found("the file is whole", whole == "ok", said=whole)
    await experiment.judge(client)


# --- 35: a soak -----------------------------------------------------------------------


def held(fleet):
    """Return what the processes hold: memory in bytes, and descriptors."""
    processes = [psutil.Process(process.pid) for process in fleet.processes]
    memory = sum(process.memory_info().rss for process in processes)
    return memory, sum(process.num_fds() for process in processes)


@pytest.mark.experiment(35)
@pytest.mark.chaos
async def test_processes_hold_no_more_after_a_while_than_before(
    fleet, client, busy, experiment, ticks
):
    async for _ in ticks(15, 1):
        pass
    memory, descriptors = held(fleet)
    async for _ in ticks(30, 1):
        pass
    later, now = held(fleet)
    seen = await rest(busy)
    await experiment.drain(client)

    experiment.found("every submit is answered 202", seen == [202], seen=seen)
    growth = round(later / memory, 3)
    experiment.found("memory stays", growth <= GROWTH, growth=growth, bytes=later)
    experiment.found(
        "descriptors stay", now <= descriptors + 8, before=descriptors, after=now
    )
    await experiment.judge(client)


# --- 36: a backup under load ----------------------------------------------------------


def tool(name):
    """Find a program of the server's own version."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not found:
        cannot(f"{name} is not installed")
    return found[-1]


async def back_up_file(url, folder):
    """Copy a file as docs/operating.md says."""
    copy = folder / "restored.db"

    def back_up():
        source = sqlite3.connect(url.removeprefix("sqlite:///"))
        source.execute("VACUUM INTO ?", (str(copy),))
        source.close()

    await asyncio.to_thread(back_up)
    return f"sqlite:///{copy}"


async def back_up_database(url, folder):
    """Dump a database and restore it into another."""
    dump, restored = folder / "dump", f"{url}_restored"
    admin = await asyncpg.connect(url)
    await admin.execute(f'CREATE DATABASE "{restored.rpartition("/")[2]}"')
    await admin.close()
    for command in (
        [tool("pg_dump"), "--format=custom", f"--file={dump}", f"--dbname={url}"],
        [tool("pg_restore"), f"--dbname={restored}", dump],
    ):
        await asyncio.to_thread(subprocess.run, command, check=True)
    return restored


@pytest.fixture
async def restored(fleet, tmp_path):
    """Back up this test's database; open what comes of it."""
    opened = []

    async def restore():
        of = back_up_file if fleet.url.startswith("sqlite") else back_up_database
        fleet.url = await of(fleet.url, tmp_path)
        store = find_store(fleet.url, SystemClock(), NoFaults())
        await store.open()
        opened.append(store)
        return store

    yield restore
    fleet.end()
    for store in opened:
        await store.close()
    if opened and not fleet.url.startswith("sqlite"):
        admin = await asyncpg.connect(fleet.url.removesuffix("_restored"))
        name = fleet.url.rpartition("/")[2]
        await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        await admin.close()


async def ids(store):
    rows = await store.transact(
        lambda tx: tx.connection.execute(sa.text("SELECT id, state FROM jobs")).all()
    )
    return dict(map(tuple, rows))


@pytest.mark.experiment(36)
@pytest.mark.chaos
async def test_a_backup_that_was_taken_under_load_goes_on_by_itself(
    fleet, client, busy, restored, experiment, eventually
):
    async def has_begun():
        return len(client.ledger.acknowledged) > 200

    await eventually(has_begun)
    before = list(client.ledger.acknowledged)
    store = await restored()
    seen = await rest(busy)
    found = await ids(store)
    for process in list(fleet.processes):
        process.kill()
    await fleet.worker(**MANY).ready()

    async def has_ended():
        return all(JobState(state).is_final for state in (await ids(store)).values())

    await eventually(has_ended)
    missing = [job for job in before if job not in found]
    experiment.found("what was acknowledged is in it", not missing, jobs=len(found))
    experiment.found("every submit is answered 202", seen == [202], seen=seen)
    rows = await store.transact(
        lambda tx: tx.connection.execute(sa.select(effects)).all()
    )
    ledger = Ledger(
        acknowledged=before, effective=list(found), effects=[tuple(row) for row in rows]
    )
    breaches = await store.transact(lambda tx: audit(tx.connection, ledger, LIMITS))
    experiment.found(
        "I1 to I7", not breaches, breaches=[f"{b.invariant} {b.told}" for b in breaches]
    )
