import asyncio
import sys
import threading
from datetime import timedelta

import pytest
import sqlalchemy as sa

from backburner.domain.errors import IdempotencyConflict, StoreUnavailable
from backburner.domain.jobs.job import JobState, Submitted
from backburner.ports.store.jobs import ClaimRequest
from backburner.stores.sqlite.database import driver
from backburner.testing.samples import NOON, a_new_job


@pytest.fixture
async def together(store):
    """Let calls wait for the writer together, and return what each came to."""
    begun, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def occupy(_tx):
        loop.call_soon_threadsafe(begun.set)
        go.wait()

    async def together(*calls):
        occupied = asyncio.create_task(store.transact(occupy))
        await begun.wait()
        waiting = [asyncio.ensure_future(call) for call in calls]
        loop.call_soon(go.set)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        await occupied
        return answers

    return together


async def test_submits_that_wait_together_share_a_commit(store, passed, together):
    jobs = [a_new_job() for _ in range(50)]

    answers = await together(*(store.submit([job]) for job in jobs))

    assert [[Submitted(job.id, JobState.QUEUED)] for job in jobs] == answers
    assert ["transact.after_commit", "submit.after_commit"] == [
        name for name in passed.names if name.endswith("after_commit")
    ]


async def test_calls_of_all_kinds_share_a_commit(store, passed, together):
    await together(
        store.submit([a_new_job()]), store.ping(), store.promote(now=NOON, limit=1)
    )

    assert ["submit", "_touch", "promote"] == [
        name.partition(".")[0] for name in passed.names[2:5]
    ]
    assert ["before_commit"] * 3 == [n.partition(".")[2] for n in passed.names[2:5]]


async def test_a_caller_sees_only_its_own_failure(store, together):
    await store.submit([a_new_job(idempotency_key="k", body_hash="h")])
    good = [a_new_job() for _ in range(3)]
    bad = a_new_job(idempotency_key="k", body_hash="other")

    answers = await together(
        store.submit([good[0]]),
        store.submit([bad]),
        store.submit([good[1]]),
        store.transact(lambda tx: tx.rows("SELECT no_such_column")),
        store.submit([good[2]]),
    )

    assert isinstance(answers[1], IdempotencyConflict)
    assert isinstance(answers[3], Exception)
    assert 3 == len(await store.find([job.id for job in good]))


async def test_a_caller_that_went_away_does_not_disturb_the_others(store, together):
    gone = asyncio.ensure_future(store.submit([a_new_job()]))
    asyncio.get_running_loop().call_soon(gone.cancel)

    answers = await together(gone, store.submit([a_new_job()]))

    assert isinstance(answers[0], asyncio.CancelledError)
    assert JobState.QUEUED == answers[1][0].state


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
async def test_a_body_that_ends_the_transaction_is_told_off(store, statement):
    with pytest.raises(RuntimeError, match="must not commit"):
        await store.transact(lambda tx: tx.driver.execute(statement))

    assert await store.submit([a_new_job()])


async def test_a_body_may_raise_what_it_likes_and_the_writer_lives(store):
    with pytest.raises(StoreUnavailable):
        await store.transact(lambda _: sys.exit())

    assert await store.submit([a_new_job()])


def level(tx):
    return tx.connection.execute(sa.text("PRAGMA synchronous")).scalar()


async def test_what_is_promised_is_written_to_the_disk_first(store):
    await store.promote(now=NOON, limit=1)

    assert 2 == await store.transact(level)
    assert "wal" == await store.transact(
        lambda tx: tx.connection.execute(sa.text("PRAGMA journal_mode")).scalar()
    )


async def test_a_claim_does_not_wait_for_the_disk(store, together):
    levels = []

    def look(tx, asks):
        levels.append(level(tx))
        return asks

    await store._write(look, None, durable=False)
    await together(store._write(look, None, durable=False), store.submit([]))

    assert [1, 2] == levels


async def test_a_reader_cannot_write(store):
    with pytest.raises(StoreUnavailable, match="READONLY"):
        await store.read(lambda c: driver(c).execute("DELETE FROM jobs"))


async def test_a_worker_from_before_a_restart_of_the_machine_is_gone(store):
    await store.transact(
        lambda tx: tx.driver.execute(
            "INSERT INTO workers (id, host, pid, slots, queues, started_at, beat_at)"
            " VALUES ('w_1', 'here', 1, 1, 'q', 0, 999999999999)"
        )
    )

    await store.orphans(lease=timedelta(days=365), limit=1)

    assert [] == await store.workers()


async def test_wants_of_nothing_take_nothing(store):
    await store.transact(
        lambda tx: tx.driver.execute(
            "INSERT INTO workers (id, host, pid, slots, queues, started_at, beat_at)"
            " VALUES ('w_1', 'here', 1, 1, 'q', 0, 0)"
        )
    )
    await store.submit([a_new_job()])

    assert [] == await store.claim("w_1", "t", [ClaimRequest("default", 0)], now=NOON)
