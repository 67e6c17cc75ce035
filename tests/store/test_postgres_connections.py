"""Connections that are lost, all lent, or silent."""

import asyncio
import socket
from contextlib import AsyncExitStack, closing
from dataclasses import replace

import asyncpg
import pytest
import sqlalchemy as sa

from backburner.domain.errors import IdempotencyConflict, StoreUnavailable
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.outcome import Done
from backburner.domain.jobs.transitions import Change
from backburner.engine.run.heartbeat import Pulse
from backburner.ports.faults import NoFaults
from backburner.ports.notifier import Notification
from backburner.ports.store.jobs import ClaimRequest, Settlement
from backburner.ports.store.workers import Vitals, WorkerInfo
from backburner.stores.postgres import database, driver, heart
from backburner.stores.postgres import notifier as notifiers
from backburner.stores.postgres.database import dial
from backburner.stores.postgres.heart import PostgresHeart
from backburner.stores.postgres.notifier import PostgresNotifier
from backburner.stores.postgres.pipe import Pipe
from backburner.stores.postgres.store import PostgresStore
from backburner.testing.doubles import FrozenClock
from backburner.testing.samples import NOON, a_claim, a_new_job
from backburner.testing.store.acts import settlement

TERMINATE = """
SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

VITALS = Vitals(0, 0, None)


@pytest.fixture
async def open_store(postgres_url):
    async with AsyncExitStack() as stack:

        async def open_one():
            store = PostgresStore(postgres_url, faults=NoFaults())
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield open_one


@pytest.fixture
async def store(open_store):
    return await open_store()


@pytest.fixture
async def terminate(postgres_url):
    """End every session but this one."""
    admin = await asyncpg.connect(postgres_url)
    yield lambda: admin.fetchval(TERMINATE)
    await admin.close()


async def fill_the_pool(store):
    """Have every connection of the pool open and given back."""
    await asyncio.gather(
        *(store.history("nobody", after=0, limit=1) for _ in range(database.POOL))
    )


async def test_a_connection_that_was_ended_is_not_lent_again(store, terminate):
    await fill_the_pool(store)
    ended = await terminate()
    read = [await store.history("nobody", after=0, limit=1) for _ in range(9)]

    assert ended >= database.POOL
    assert [[]] * 9 == read


async def test_without_a_look_at_it_it_is(open_store, terminate, monkeypatch):
    monkeypatch.setattr(database, "_refuse_a_closed_one", lambda *_: None)
    store = await open_store()
    await fill_the_pool(store)
    await terminate()

    with pytest.raises(StoreUnavailable):
        await store.history("nobody", after=0, limit=1)


async def test_a_lane_that_lost_its_connection_opens_another(store, terminate):
    await store.submit([a_new_job()])
    await terminate()
    [submitted] = await store.submit([a_new_job()])

    assert JobState.QUEUED is submitted.state


async def test_a_caller_that_leaves_disturbs_nobody(store):
    jobs = [a_new_job() for _ in range(20)]
    tasks = [asyncio.create_task(store.submit([job])) for job in jobs]
    await asyncio.wait(tasks[:1], timeout=0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    stayed = [(await task)[0].id for task in tasks[1::2]]

    assert [job.id for job in jobs[1::2]] == stayed
    assert 10 == len(await store.find(stayed))


async def test_with_every_connection_lent_reads_end_and_writes_go_on(
    open_store, monkeypatch
):
    monkeypatch.setattr(database, "CONNECT_SECONDS", 0.2)
    store = await open_store()
    async with AsyncExitStack() as lent:
        for _ in range(database.POOL):
            await lent.enter_async_context(store._database.connection())
        with pytest.raises(StoreUnavailable):
            await store.find(["nobody"])
        [submitted] = await store.submit([a_new_job()])

    assert submitted.id == (await store.find([submitted.id]))[0].id


def look_twice(connection):
    """Return when the transaction of two statements began, as each has it."""
    return [connection.execute(sa.text("SELECT now()")).scalar() for _ in range(2)]


async def test_a_read_begins_no_transaction(store):
    first, second = await store.read(look_twice)
    one, same = await store.transact(lambda tx: look_twice(tx.connection))

    assert first != second
    assert one == same


async def test_submits_wait_for_the_disk_and_claims_do_not(store):
    await store.submit([a_new_job()])
    await store.promote(now=NOON, limit=1)
    await store.settle([settlement(a_claim(), Done("1"))])
    shown = [
        await pipe.driver.fetchval("SHOW synchronous_commit")
        for pipe in (store._submitting, store._settling, store._claiming)
    ]

    assert ["on", "on", "off"] == shown


async def test_a_deadlock_is_tried_again_statement_by_statement():
    class Driver:
        failures = 2

        def is_in_transaction(self):
            return False

        async def fetch(self, statement):
            self.failures -= 1
            if self.failures >= 0:
                raise asyncpg.DeadlockDetectedError("chosen")
            return [statement]

    pipe = Pipe(None, NoFaults())
    pipe.driver = Driver()

    assert ["SELECT"] == await pipe.rows("SELECT")


async def test_a_key_that_comes_and_goes_is_never_answered_with_a_job_of_air(store):
    job = a_new_job(idempotency_key="k", body_hash="h")
    store._statements._queries = replace(
        store.queries,
        find_by_key="SELECT '', '', '' WHERE $1 || $2 || $3 IS NULL",
    )
    await store.submit([job])

    with pytest.raises(StoreUnavailable):
        await store.submit([a_new_job(idempotency_key="k", body_hash="h")])


async def test_keys_of_many_callers_in_any_order_do_not_deadlock(open_store):
    stores = [await open_store() for _ in range(2)]
    keys = [f"k{number}" for number in range(40)]

    def submits(store, keys):
        return [
            store.submit([a_new_job(idempotency_key=key, body_hash="h")])
            for key in keys
        ]

    async with asyncio.timeout(60):
        answers = await asyncio.gather(
            *submits(stores[0], keys), *submits(stores[1], keys[::-1])
        )

    assert 40 == len({answer.id for [answer] in answers})


async def test_a_conflict_of_one_key_is_only_its_callers(store):
    await store.submit([a_new_job(idempotency_key="k", body_hash="h")])
    answers = await asyncio.gather(
        store.submit([a_new_job(idempotency_key="k", body_hash="other")]),
        store.submit([a_new_job(idempotency_key="l", body_hash="h")]),
        return_exceptions=True,
    )

    assert isinstance(answers[0], IdempotencyConflict)
    assert not answers[1][0].replayed


async def test_a_body_with_a_fault_of_its_own_does_not_blame_the_store(store):
    await store.submit([a_new_job()])
    await store.enlist(WorkerInfo("w", "h", 1, 1, ("default",), NOON))
    [claim] = await store.claim("w", "t", [ClaimRequest("default", 1)], now=NOON)

    def body(_tx):
        raise FileNotFoundError("a file of the handler's")

    def otherwise(error):
        told = {"reason": type(error).__name__}
        return Change(to=JobState.QUEUED, at=NOON, event="job.queued", data=told)

    done = Change(to=JobState.SUCCEEDED, at=NOON, event="job.succeeded", output="1")
    [applied] = await store.settle(
        [Settlement(claim.seq, claim.token, done, body, otherwise)]
    )

    assert {"reason": "FileNotFoundError"} == applied.data


async def test_a_ring_that_could_not_be_told_is_told_by_the_next_connection(
    postgres_url, terminate, monkeypatch
):
    monkeypatch.setattr(notifiers, "RECONNECT_SECONDS", 0.01)
    notifying, hearing = PostgresNotifier(postgres_url), PostgresNotifier(postgres_url)
    heard = asyncio.Queue()
    hearing.listen(heard.put_nowait)
    with closing(notifying), closing(hearing):
        notifying.open()
        hearing.open()
        async with asyncio.timeout(60):
            await heard.get()
            notifying.notify(Notification.WORK)
            first = await heard.get()
            await terminate()
            again = await heard.get()
            notifying.notify(Notification.SCHEDULE)
            last = await heard.get()

    assert (Notification.WORK, notifiers.ALL, Notification.SCHEDULE) == (
        first,
        again,
        last,
    )


async def test_a_listener_that_raises_silences_the_notifier_for_nobody(
    postgres_url, monkeypatch
):
    monkeypatch.setattr(notifiers, "RECONNECT_SECONDS", 0.01)
    notifier, heard = PostgresNotifier(postgres_url), asyncio.Queue()

    def raise_once(_):
        remove()
        raise RuntimeError("a listener's own fault")

    remove = notifier.listen(raise_once)
    notifier.listen(heard.put_nowait)
    with closing(notifier):
        notifier.open()
        async with asyncio.timeout(60):
            told = await heard.get()

    assert notifiers.ALL == told


async def test_a_strangers_word_on_the_channel_says_nothing(postgres_url):
    notifier = PostgresNotifier(postgres_url)
    stranger = await asyncpg.connect(postgres_url)
    heard = asyncio.Queue()
    notifier.listen(heard.put_nowait)
    with closing(notifier):
        notifier.open()
        async with asyncio.timeout(60):
            await heard.get()
            await stranger.execute("NOTIFY backburner, 'x'")
            await stranger.execute("NOTIFY backburner, '1'")
            told = await heard.get()
    await stranger.close()

    assert Notification.WORK == told


async def test_callers_of_a_silent_server_are_refused_together(monkeypatch):
    monkeypatch.setattr(database, "CONNECT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        store = PostgresStore(f"postgresql://u@127.0.0.1:{port}/d", faults=NoFaults())
        async with asyncio.timeout(30):  # 50, if they were refused one by one
            answers = await asyncio.gather(
                *(store.submit([a_new_job()]) for _ in range(50)),
                return_exceptions=True,
            )
        await store.close()

    assert {StoreUnavailable} == {type(answer) for answer in answers}


def test_a_beat_that_gets_no_answer_ends_before_the_lease(monkeypatch):
    monkeypatch.setattr(heart, "BEAT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        silenced = PostgresHeart(f"postgresql://u@127.0.0.1:{port}/d", "SELECT 1")
        with pytest.raises(StoreUnavailable, match=r"TimeoutError|no answer"):
            silenced.beat("w", VITALS)
        silenced.close()


def test_a_beat_that_hangs_past_the_lease_is_a_lost_lease():
    clock, lost = FrozenClock(), []

    class Hanging:
        def beat(self, _worker, _vitals):
            clock._monotonic += 1000
            raise StoreUnavailable("no answer")

    pulse = Pulse(
        Hanging(), clock, lease_ms=1000, lost=lost.append, vitals=lambda: VITALS
    )
    pulse.begin("w")
    pulse.beat()

    assert ["w"] == lost


async def test_a_process_asks_once_what_the_servers_own_types_are(
    postgres_url, monkeypatch
):
    asked = []
    ask = asyncpg.Connection._introspect_types

    async def counted(connection, types, seconds):
        asked.append(set(types))
        return await ask(connection, types, seconds)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", counted)
    monkeypatch.setattr(driver, "_known", {})
    for _ in range(2):
        connection = await dial(postgres_url, timeout=60)
        await connection.execute("CREATE DOMAIN small AS int[]")
        found = await connection.fetchval("SELECT $1::bigint[]", [1, 2])
        own = await connection.fetchval("SELECT $1::small", [3])
        await connection.execute("DROP DOMAIN small")
        await connection.close()
        assert ([1, 2], [3]) == (found, own)

    known = [types for types in asked if max(types) < driver.FIRST_OWN]
    assert [{1016}] == known, "an array of bigint, by the first connection"
    assert 2 == len(asked) - len(known), "a type of the database's own is asked for"
