"""Work on very many rows: in slices, and nobody else waits for it."""

import asyncio

import asyncpg
import pytest

from backburner.domain.costs.budget import Budget
from backburner.domain.groups.batch import Members
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import JobState
from backburner.ports.store.budgets import Viewer
from backburner.ports.store.maintenance import JobFilter
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.postgres import store as postgres
from backburner.stores.postgres.store import PostgresStore
from backburner.stores.shared import budgets, grouped
from backburner.testing.samples import (
    NOON,
    a_new_batch,
    a_new_flow,
    a_new_job,
    a_new_step,
)
from backburner.testing.store.acts import DAY, NO_RETENTION

WORKER = WorkerInfo("w_1", "here", 1, 9, ("default",), started_at=NOON)
END_ALL = """
UPDATE jobs SET state = 'succeeded', finished_at = created_at, output = '1'
"""
FEW = "INSERT INTO events (job, n, type, at) SELECT 1, n, 'job.progress', 0 FROM "
MANY = FEW + "generate_series(2, 30) AS n"


@pytest.fixture
async def store(migrated_url, passed):
    store = PostgresStore(migrated_url, faults=passed)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def session(migrated_url):
    session = await asyncpg.connect(migrated_url)
    yield session
    await session.close()


async def test_a_batch_is_cancelled_in_slices_and_its_flows_as_a_whole(
    store, passed, monkeypatch
):
    monkeypatch.setattr(grouped, "SLICE", 3)
    jobs = [a_new_job() for _ in range(7)]
    flows = [
        a_new_flow(a_new_step("a"), a_new_step("b", "a"), a_new_step("c", "b"))
        for _ in range(3)
    ]
    batch = a_new_batch()
    await store.open_batch(batch, Members(jobs, flows))
    [found] = await store.find_batches([batch.id])
    passed.names.clear()
    change = transitions.cancel_all("no", now=NOON)
    ended = await store.cancel_batch(found.seq, change)
    slices = passed.names.count("transact.after_commit")
    left = await store.jobs(JobFilter(state=JobState.BLOCKED), before=None, limit=99)

    assert 7 + 3 * 3 == ended
    assert 5 <= slices
    assert [] == list(left)
    assert await store.batches_over(limit=9) == [found.seq]
    assert {"cancelled"} == {
        flow.state for flow in await store.find_flows([flow.id for flow in flows])
    }


async def test_one_that_dies_between_slices_leaves_no_flow_half_cancelled(
    store, monkeypatch
):
    monkeypatch.setattr(grouped, "SLICE", 1)
    flows = [a_new_flow(a_new_step("a"), a_new_step("b", "a")) for _ in range(2)]
    batch = a_new_batch()
    await store.open_batch(batch, Members([], flows))
    [found] = await store.find_batches([batch.id])
    internal_transaction, calls = store.internal_transaction, []

    async def die(body):
        if calls:
            raise OSError("the process is gone")
        calls.append(body)
        return await internal_transaction(body)

    monkeypatch.setattr(store, "internal_transaction", die)
    change = transitions.cancel_all("no", now=NOON)
    with pytest.raises(OSError, match="gone"):
        await store.cancel_batch(found.seq, change)
    states = [f.state for f in await store.find_flows([flow.id for flow in flows])]
    monkeypatch.setattr(store, "internal_transaction", internal_transaction)

    assert ["cancelled", "running"] == sorted(states)
    assert 2 == await store.cancel_batch(found.seq, change)


async def test_jobs_with_many_events_are_pruned_by_several_statements(
    store, session, passed, monkeypatch
):
    monkeypatch.setattr(postgres, "PRUNED_EVENTS", 20)
    jobs = [a_new_job() for _ in range(5)]
    await store.submit(jobs)
    await session.execute(MANY)
    await session.execute("UPDATE jobs SET events = 30 WHERE seq = 1")
    await session.execute(END_ALL)
    passed.names.clear()
    pruned = await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)

    assert {job.id for job in jobs} == set(pruned)
    # One with the first job alone, one with the rest, and one that finds none; the
    # other two states have none either.
    assert 5 == passed.names.count("prune.after_commit")
    assert 0 == await session.fetchval("SELECT count(*) FROM events")


async def test_nobody_waits_for_a_delete_that_waits(store, session):
    await store.submit([a_new_job()])
    await session.execute(END_ALL)
    async with session.transaction():
        await session.execute("SELECT FROM events FOR UPDATE")
        pruning = asyncio.create_task(
            store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)
        )
        await is_waiting(session)
        async with asyncio.timeout(60):
            await store.ping()
            await store.enlist(WORKER)
            await store.transact(lambda _: None)
            assert [] == list(await store.overdue(now=NOON, limit=1))
        assert not pruning.done()
    assert 1 == len(await pruning)


async def is_waiting(session):
    """Return when another session waits for a lock of this one."""
    asked = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    async with asyncio.timeout(60):
        while not await session.fetchval(asked):
            pass


async def test_an_old_account_is_forgotten_in_slices(store, session, monkeypatch):
    monkeypatch.setattr(budgets, "SLICE", 2)
    await store.put_budgets([Budget("user", tokens=1000)])
    await store.submit([a_new_job(tokens=1) for _ in range(5)])
    await session.execute("UPDATE holds SET is_open = false")
    await session.execute("UPDATE accounts SET held = 0, window_at = 0")
    rounds = 1
    while 9 == await store.forget_accounts(before=1, limit=9):
        rounds += 1

    assert 4 < rounds
    assert [] == list(await store.accounts(Viewer(), limit=9))
    assert 0 == await session.fetchval("SELECT count(*) FROM entries")
