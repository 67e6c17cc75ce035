"""Two processes that learn late what a job used; neither overwrites the other."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import asyncpg
import pytest
from sqlalchemy.util import await_only

from backburner.domain.costs.budget import Balance
from backburner.domain.costs.usage import RunUsage
from backburner.domain.jobs import transitions
from backburner.domain.jobs.outcome import Done
from backburner.ports.faults import NoFaults
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.postgres.queries import Queries
from backburner.stores.postgres.store import PostgresStore
from backburner.stores.shared.usages import book_calls
from backburner.testing.broker.acts import pause
from backburner.testing.samples import NOON
from backburner.testing.store.acts import find, settlement, submit
from backburner.testing.store.budgets import HUNDRED, ann, calls

HELD_UP = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


def sharing():
    """Have two late bookings lock their job at the same time: a mutation."""
    queries = Queries.load()
    shared = queries.insert_usages.replace("FOR NO KEY UPDATE", "FOR SHARE")
    assert shared != queries.insert_usages
    return replace(queries, insert_usages=shared)


@pytest.fixture
async def open_store(migrated_url):
    async with AsyncExitStack() as stack:

        async def open_one(queries=None):
            store = PostgresStore(migrated_url, queries=queries, faults=NoFaults())
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield open_one


@pytest.fixture
async def watcher(migrated_url):
    connection = await asyncpg.connect(migrated_url)
    yield connection
    await connection.close()


async def a_cancelled_run(store):
    """Return the claim of a job that was cancelled while it ran."""
    await store.put_budgets([HUNDRED])
    await store.enlist(WorkerInfo("w_1", "here", 1, 8, ("default",), started_at=NOON))
    job_id = await submit(store, tokens=40)
    [claim] = await store.claim("w_1", "t1", [ClaimRequest("default", 1)], now=NOON)
    job = await find(store, job_id)
    cancel = transitions.cancel(job, "asked", now=NOON + 1000)
    told = settlement(claim, Done("1"))._replace(
        change=cancel, consequences=job.consequences
    )
    await store.settle([told])
    return claim


def late(claim, epoch, tokens):
    return RunUsage(claim.seq, claim.token, 0, claim.events + epoch, calls(tokens))


async def book_three(one, two, watcher):
    """Book twice at once, the first held open, then once more."""
    claim = await a_cancelled_run(one)
    arrived, go = asyncio.Event(), asyncio.Event()

    def held(tx):
        book_calls(tx, [late(claim, 0, 30)])
        arrived.set()
        await_only(go.wait())

    async with asyncio.timeout(60):
        first = asyncio.ensure_future(one.internal_transaction(held))
        await arrived.wait()
        second = asyncio.ensure_future(two.book([late(claim, 1, 20)]))
        while not second.done() and not await watcher.fetchval(HELD_UP):
            await pause()
        go.set()
        await asyncio.gather(first, second)
        await two.book([late(claim, 2, 5)])
    return await ann(one)


async def test_what_two_learn_at_once_is_overdraft_once(open_store, watcher):
    balance = await book_three(await open_store(), await open_store(), watcher)

    assert Balance(settled=55, overdraft=55) == balance


async def test_with_a_shared_lock_the_second_forgets_the_first(open_store, watcher):
    """The control of the test above."""
    queries = sharing()
    stores = [await open_store(queries) for _ in range(2)]
    balance = await book_three(*stores, watcher)

    assert Balance(settled=85, overdraft=85) == balance, "30 are booked again"
