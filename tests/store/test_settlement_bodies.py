"""Bodies of settlements: many in a transaction, and what a database's failure means."""

import sqlite3
from contextlib import asynccontextmanager

import asyncpg
import pytest
import sqlalchemy as sa

from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.job import JobState, Owner
from backburner.domain.jobs.outcome import Done, Failed
from backburner.ports.faults import NoFaults
from backburner.ports.store.budgets import HoldRequest
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.postgres.store import PostgresStore
from backburner.stores.shared.ledger import kept
from backburner.testing.samples import NOON, a_new_job
from backburner.testing.store.acts import find, settlement

TRANSACTION = sa.text("SELECT pg_current_xact_id()::text")


@pytest.fixture
async def shared(migrated_url):
    store = PostgresStore(migrated_url, faults=NoFaults())
    await store.open()
    yield store
    await store.close()


async def claimed(store, count):
    info = WorkerInfo("w", "host", 1, slots=count, queues=("default",), started_at=NOON)
    await store.enlist(info)
    await store.submit([a_new_job() for _ in range(count)])
    return await store.claim("w", "token", [ClaimRequest("default", count)], now=NOON)


def to_failure(claim):
    return lambda _error: settlement(claim, Failed("BODY", "it raised")).change


async def test_bodies_share_a_transaction(shared):
    claims, seen = await claimed(shared, 10), []

    def body(tx):
        seen.append(tx.connection.execute(TRANSACTION).scalar_one())

    applied = await shared.settle([settlement(c, Done("1"), body=body) for c in claims])

    assert [JobState.SUCCEEDED] * 10 == [change.to for change in applied]
    assert (10, 1) == (len(seen), len(set(seen)))


async def test_of_many_bodies_only_those_that_raise_go_another_way(shared):
    claims = await claimed(shared, 10)
    bad = {claims[2].seq, claims[7].seq}

    def body_of(claim):
        def body(tx):
            tx.connection.execute(
                sa.text("INSERT INTO seen VALUES (:seq)"), {"seq": claim.seq}
            )
            if claim.seq in bad:
                raise ValueError("no")

        return body

    await shared.transact(
        lambda tx: tx.connection.execute(sa.text("CREATE TABLE seen (seq bigint)"))
    )
    applied = await shared.settle(
        [
            settlement(c, Done("1"), body=body_of(c), otherwise=to_failure(c))
            for c in claims
        ]
    )
    written = await shared.read(
        lambda c: (
            c.execute(sa.text("SELECT seq FROM seen ORDER BY seq")).scalars().all()
        )
    )

    failed = {c.seq for c, x in zip(claims, applied, strict=True) if x.error}
    assert bad == failed
    assert sorted({c.seq for c in claims} - bad) == written


@asynccontextmanager
async def locked(url, table):
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        await connection.execute(f"LOCK TABLE {table}")
        yield
    await connection.close()


async def test_a_ledger_that_is_locked_is_no_fault_of_the_handler(shared, migrated_url):
    [claim], owner = await claimed(shared, 1), Owner("acme", "ann")

    def body(tx):
        tx.connection.execute(sa.text("SET LOCAL lock_timeout = '50ms'"))
        tx.reserve_hold(HoldRequest("h", owner, NOON, 5))

    asked = settlement(claim, Done("1"), body=body, otherwise=to_failure(claim))
    async with locked(migrated_url, "holds"):
        with pytest.raises(StoreUnavailable):
            await shared.settle([asked])
    before = (await find(shared, claim.id)).state
    [change] = await shared.settle([asked])

    assert JobState.RUNNING is before
    assert JobState.SUCCEEDED is change.to


async def test_a_busy_file_is_no_fault_of_the_handler(store, path):
    [claim] = await claimed(store, 1)
    other, busy = sqlite3.connect(path, timeout=0, check_same_thread=False), [True]

    def body(_tx):
        if busy:
            with kept():
                other.execute("BEGIN IMMEDIATE")

    asked = settlement(claim, Done("1"), body=body, otherwise=to_failure(claim))
    with pytest.raises(StoreUnavailable):
        await store.settle([asked])
    before = (await find(store, claim.id)).state
    busy.clear()
    [change] = await store.settle([asked])
    other.close()

    assert JobState.RUNNING is before
    assert JobState.SUCCEEDED is change.to


async def test_what_a_body_raises_of_its_own_is_the_handlers(shared):
    [claim] = await claimed(shared, 1)

    def body(_tx):
        raise StoreUnavailable("somebody else's store")

    asked = settlement(claim, Done("1"), body=body, otherwise=to_failure(claim))
    [change] = await shared.settle([asked])

    assert "BODY" == change.error.code
