"""A PostgreSQL server that fails its clients, and a load that must not notice."""

import asyncio
import secrets
from contextlib import suppress

import asyncpg
import pytest

from backburner.adapters import find_store
from backburner.clock import SystemClock
from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.transitions import Limits
from backburner.ports.faults import NoFaults
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.workers import WorkerInfo
from backburner.testing.samples import NOON, a_new_job
from backburner.testing.store.acts import progress

MANY = {"BACKBURNER_CRASH_LIMIT": "1000"}
BY_NOTIFIER = {"BACKBURNER_TRANSPORT": "database"}
SELDOM = {"BACKBURNER_POLL_SECONDS": "60"}
OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
 WHERE datname = $1 AND pid <> pg_backend_pid()
"""


@pytest.fixture
async def store_url(own_postgres):
    """A database of its own on a server that may be stopped."""
    name = f"test_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(own_postgres.url)
    await admin.execute(f'CREATE DATABASE "{name}"')
    await admin.close()
    return own_postgres.url.rsplit("/", 1)[0] + f"/{name}"


async def terminate_all(store_url, ticks):
    """End every other session of the database at each tick; return how many."""
    admin = await asyncpg.connect(store_url)
    name = store_url.rpartition("/")[2]
    ended = sum([await admin.fetchval(OTHERS, name) async for _ in ticks])
    await admin.close()
    return ended


@pytest.fixture
async def caller(fleet, caller_of):
    """A caller that submits without pause to a fleet of three processes."""
    server = await fleet.serve("breakable", "--no-worker", **MANY).ready()
    for _ in range(2):
        await fleet.worker(**MANY).ready()
    caller = caller_of(server)
    caller.begin(pause=0.04)
    return caller


async def test_what_a_run_reports_outlasts_a_crash_of_the_server(
    own_postgres, store_url
):
    admin = await asyncpg.connect(own_postgres.url)
    await admin.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
    await admin.execute("SELECT pg_reload_conf()")
    await admin.close()
    store = find_store(store_url, SystemClock(), NoFaults())
    await store.open()
    await store.enlist(WorkerInfo("w", "here", 1, 1, ("default",), NOON))
    await store.submit([a_new_job()])
    [claim] = await store.claim("w", "t" * 16, [ClaimRequest("default", 1)], now=NOON)
    await store.report([progress(claim, n=claim.events + 1)])
    own_postgres.crash_and_start()
    later = progress(claim, n=claim.events + 2)
    for _ in range(100):  # the first calls find their sessions gone
        with suppress(StoreUnavailable):
            await store.report([later])
            break
    told = [e.n for e in await store.history(claim.id, after=claim.events, limit=9)]
    await store.close()

    assert [claim.events + 1, claim.events + 2] == told


async def test_a_worker_that_hears_no_notifier_finds_work_by_polling(fleet, client):
    await fleet.worker("deaf", **BY_NOTIFIER).ready()
    [ended] = await client.ended(await client.submit("work", {}))

    assert JobState.SUCCEEDED is ended.state


async def test_without_polling_it_does_not(fleet, client):
    await fleet.worker("deaf", **BY_NOTIFIER, **SELDOM).ready()
    # It looks once as it starts, and once more if it found something then.
    for _ in range(3):
        [left] = await client.ended(await client.submit("work", {}), within=1.5)

    assert JobState.QUEUED is left.state


async def test_a_listener_that_was_cut_off_hears_again(fleet, client, store_url, ticks):
    await fleet.worker(**BY_NOTIFIER, **SELDOM).ready()
    await terminate_all(store_url, ticks(0, 1))
    [ended] = await client.ended(await submitted(client), within=30)

    assert JobState.SUCCEEDED is ended.state


async def test_an_outage_longer_than_the_lease_costs_no_job_a_worker(
    fleet, client, gate, own_postgres, eventually
):
    workers = [await fleet.worker().ready() for _ in range(2)]
    jobs = await client.submit("work", *({"gate": str(gate)} for _ in range(4)))
    for job in jobs:
        await client.seen(job, "job.started")
    own_postgres.crash()

    async def have_lost_their_leases():
        return all("worker lost its lease" in worker.log for worker in workers)

    await eventually(have_lost_their_leases)
    own_postgres.start()
    gate.unlink()
    ended = await client.ended(jobs)

    assert [(JobState.SUCCEEDED, 0)] * 4 == [(job.state, job.crashes) for job in ended]
    assert {1} == {worker.log.count("worker lost its lease") for worker in workers}
    assert [] == await client.audit()


async def test_a_database_that_is_lost_during_the_start_ends_it_with_one_line(fleet):
    process = fleet.worker("cut_off_at_start")
    code = await process.ended()

    assert 2 == code
    assert "Traceback" not in process.log
    assert "backburner: BACKBURNER_STORE: " in process.log


async def submitted(client):
    """Submit, again if the first connection is found to be gone."""
    with suppress(StoreUnavailable):
        return await client.submit("work", {})
    return await client.submit("work", {})


@pytest.fixture
def crash_twice(own_postgres, ticks):
    async def crash_twice():
        async for _ in ticks(1, 2):
            await asyncio.to_thread(own_postgres.crash_and_start)

    return crash_twice


@pytest.mark.parametrize(
    "rounds", [8, pytest.param(60, marks=pytest.mark.chaos)], ids=["4 s", "30 s"]
)
async def test_terminated_sessions_and_crashes_of_the_server_lose_nothing(
    caller, client, store_url, crash_twice, ticks, rounds
):
    terminated = await terminate_all(store_url, ticks(0.5, rounds))
    statuses = [status for status, _ in caller.answers]
    await crash_twice()
    await caller.pause()
    await caller.accepted(within=5)
    ended = await client.ended(client.ledger.acknowledged)

    assert terminated > rounds
    assert statuses.count(202) > len(statuses) / 2
    assert {(202, "1"), (503, "2")} == set(caller.answers)
    assert len(ended) > 50
    assert {JobState.SUCCEEDED} == {job.state for job in ended}
    assert [] == await client.audit(Limits(crashes=1000))


@pytest.mark.thorough
async def test_a_reader_of_every_event_is_cut_often_and_misses_none(
    caller, client, store_url, eventually, ticks
):
    caller.follow()
    await terminate_all(store_url, ticks(0.5, 6))
    await caller.pause()
    await client.at_rest()
    last = await client.store.latest()

    async def has_read_all():
        return caller.stream[-1:] == [last]

    await eventually(has_read_all)
    client.ledger.stream = caller.stream

    assert len(caller.stream) > 100
    assert [] == await client.audit(Limits(crashes=1000))
