"""Processes under load for a while: what they hold, what a backup of them holds."""

import asyncio
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import asyncpg
import psutil
import pytest
import sqlalchemy as sa
from breakable import effects

from backburner.adapters import find_store
from backburner.clock import SystemClock
from backburner.domain.jobs.job import JobState
from backburner.ports.faults import NoFaults
from backburner.testing.auditor import Ledger, audit
from tests.chaos.conftest import MANY as LIMITS
from tests.faults.conftest import cannot

MANY = {"BACKBURNER_CRASH_LIMIT": "1000"}
LARGEST_LOG = 64 * 1024 * 1024
GROWTH = 1.10
DESCRIPTORS = 8


@pytest.fixture
def handlers():
    """The module that workers load."""
    return "breakable"


@pytest.fixture
async def busy(fleet, caller_of, handlers):
    """Two servers and two workers, and a load on both servers."""
    servers = [fleet.serve("breakable", "--no-worker", **MANY) for _ in range(2)]
    workers = [fleet.worker(handlers, **MANY) for _ in range(2)]
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


async def grown(fleet, at_first, then):
    """Return by how much memory grew after a while, and how many more descriptors."""
    async for _ in at_first:
        pass
    memory, descriptors = held(fleet)
    async for _ in then:
        pass
    later, now = held(fleet)
    return round(later / memory, 3), now - descriptors


@pytest.mark.experiment(35)
@pytest.mark.chaos
async def test_processes_hold_no_more_after_a_while_than_before(
    fleet, client, busy, experiment, ticks
):
    growth, more = await grown(fleet, ticks(15, 1), ticks(30, 1))
    seen = await rest(busy)
    await experiment.drain(client)

    experiment.found("every submit is answered 202", seen == [202], seen=seen)
    experiment.found("memory stays", growth <= GROWTH, growth=growth)
    experiment.found("descriptors stay", more <= DESCRIPTORS, more=more)
    await experiment.judge(client)


@pytest.mark.chaos
@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("handlers", ["hoarding"])
async def test_control_processes_that_let_go_of_nothing_are_noticed(fleet, ticks):
    growth, more = await grown(fleet, ticks(5, 1), ticks(15, 1))

    assert growth > GROWTH
    assert more > DESCRIPTORS


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


@pytest.mark.chaos
@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_control_a_copy_of_the_file_alone_lacks_what_was_acknowledged(
    fleet, client, tmp_path, eventually
):
    async def has_begun():
        return len(client.ledger.acknowledged) > 200

    await eventually(has_begun)
    before = set(client.ledger.acknowledged)
    copy = shutil.copy(fleet.url.removeprefix("sqlite:///"), tmp_path / "alone.db")
    with closing(sqlite3.connect(copy)) as alone:
        found = {job for (job,) in alone.execute("SELECT id FROM jobs")}

    assert before - found
