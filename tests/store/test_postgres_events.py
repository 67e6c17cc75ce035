"""Numbers are drawn before they commit; no reader of all events may skip a late one."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from backburner.ports.faults import NoFaults
from backburner.stores.postgres import store as stores
from backburner.stores.postgres.horizon import MOST_NOTES, Horizon
from backburner.stores.postgres.statements import columns
from backburner.stores.postgres.store import PostgresStore
from backburner.testing.broker.acts import pause
from backburner.testing.samples import ANN, a_new_job

FAIL = """
WITH dead AS (
  UPDATE jobs SET state = 'failed', finished_at = 1, events = 2 WHERE id = $1
  RETURNING seq
)
INSERT INTO events (job, n, type, at) SELECT seq, 2, 'job.failed', 1 FROM dead
"""


class Writer:
    """A session of its own with an open transaction."""

    def __init__(self, connection, statement):
        self._connection = connection
        self._transaction = connection.transaction()
        self._statement = statement

    async def begin(self):
        await self._transaction.start()
        await self._connection.fetch("SELECT pg_current_xact_id()")

    async def submit(self, job):
        await self._connection.fetch(self._statement, *columns([job], [1]))

    async def fail(self, job):
        await self._connection.execute(FAIL, job.id)

    async def commit(self):
        await self._transaction.commit()


@pytest.fixture
async def store(migrated_url):
    store = PostgresStore(migrated_url, faults=NoFaults())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def writers(store, migrated_url):
    """Two sessions, each in a transaction; the first is the older one."""
    connections = [await asyncpg.connect(migrated_url) for _ in range(2)]
    writers = [Writer(c, store.queries.insert_jobs) for c in connections]
    for writer in writers:
        await writer.begin()
    yield writers
    for connection in connections:
        await connection.close()


async def read(store, after=0):
    return [e.subject for e in (await store.stream(ANN, after=after, limit=9)).events]


async def read_in_time(store, after=0):
    """Read until there is something: autovacuum may be in a transaction."""
    async with asyncio.timeout(60):
        while not (seen := await read(store, after)):
            await pause()
    return seen


@pytest.mark.parametrize("slow", [0, 1], ids=["older", "younger"])
async def test_an_event_that_commits_late_is_waited_for(store, writers, slow):
    late, quick = writers[slow], writers[1 - slow]
    first, second = a_new_job(), a_new_job()
    await late.submit(first)
    await quick.submit(second)
    await quick.commit()
    early = [await read(store) for _ in range(3)]
    await late.commit()

    assert [[]] * 3 == early
    assert [first.id, second.id] == await read_in_time(store)


@pytest.mark.parametrize("slow", [0, 1], ids=["older", "younger"])
async def test_with_the_newest_event_as_the_horizon_it_is_skipped(
    store, writers, slow, monkeypatch
):
    monkeypatch.setattr(store, "latest", store._look)
    late, quick = writers[slow], writers[1 - slow]
    await late.submit(a_new_job())
    await quick.submit(a_new_job())
    await quick.commit()
    [seen] = (await store.stream(ANN, after=0, limit=9)).events
    await late.commit()

    assert 2 == seen.seq
    assert [] == await read(store, after=seen.seq)


async def test_a_new_process_begins_at_the_end_though_others_write(
    store, writers, migrated_url, monkeypatch
):
    await store.submit([a_new_job()])
    fresh, looks, looked = (
        PostgresStore(migrated_url, faults=NoFaults()),
        0,
        asyncio.Event(),
    )
    prove = fresh._prove_by_locks

    async def count():
        nonlocal looks
        await prove()
        looks += 1
        if looks > 1:
            looked.set()  # it has found that a transaction has written events

    for writer in writers:
        await writer.submit(a_new_job())
    monkeypatch.setattr(fresh, "_prove_by_locks", count)
    monkeypatch.setattr(stores, "FIRST_PROOF_SECONDS", 60)
    await fresh.open()
    asking = asyncio.create_task(fresh.latest())
    await asyncio.wait(
        {asking, asyncio.create_task(looked.wait())}, return_when="FIRST_COMPLETED"
    )
    is_waiting = not asking.done()
    for writer in writers:
        await writer.commit()
    found = await asking
    await fresh.close()

    assert is_waiting
    assert 1 == found


async def test_a_new_process_does_not_wait_for_those_who_write_no_events(
    store, writers, migrated_url, monkeypatch
):
    """*Before: its readers without a cursor began with the oldest event.*"""
    for _ in range(3):
        await store.submit([a_new_job()])
    reader = writers[0]
    await reader._connection.fetch(
        "SELECT seq FROM events"
    )  # a lock, not that of writes
    monkeypatch.setattr(stores, "FIRST_PROOF_SECONDS", 0)
    fresh = PostgresStore(migrated_url, faults=NoFaults())
    await fresh.open()
    found = await fresh.latest()
    late = a_new_job()
    await reader.submit(late)
    for writer in writers:
        await writer.commit()
    seen = await read_in_time(fresh, after=found)
    await fresh.close()

    assert 3 == found
    assert [late.id] == seen


async def test_a_number_that_is_never_used_holds_nobody_up(store, writers):
    failing, quick = writers
    await failing.submit(a_new_job())
    job = a_new_job()
    await quick.submit(job)
    await quick.commit()
    await failing._transaction.rollback()

    assert [job.id] == await read_in_time(store)


async def test_a_reader_that_begins_now_begins_before_what_is_still_to_come(
    store, writers
):
    late, quick = writers
    job = a_new_job()
    await late.submit(job)
    await quick.submit(a_new_job())
    await quick.commit()
    begun = await store.latest()
    await late.commit()

    assert job.id in await read_in_time(store, after=begun)


async def test_a_transaction_of_another_database_holds_nobody_up(store, migrated_url):
    elsewhere = await asyncpg.connect(migrated_url.rpartition("/")[0] + "/postgres")
    async with elsewhere.transaction():
        await elsewhere.fetch("SELECT pg_current_xact_id()")
        job = a_new_job()
        await store.submit([job])
        seen = await read_in_time(store)
    await elsewhere.close()

    assert [job.id] == seen


def test_nothing_is_safe_before_an_older_transaction_is_over():
    horizon = Horizon()
    horizon.note(newest=7, drawn=100)
    horizon.pass_over(99, made=1)
    early = horizon.safe
    horizon.pass_over(100, made=1)

    assert (0, 7) == (early, horizon.safe)


def test_a_look_that_arrives_late_takes_nothing_back():
    horizon = Horizon()
    horizon.note(newest=9, drawn=101)
    horizon.note(newest=7, drawn=100)
    horizon.pass_over(102, made=2)

    assert 9 == horizon.safe
    assert (False, True) == (horizon.is_news(9), horizon.is_news(10))


def test_a_look_proves_nothing_that_was_noted_after_it_was_sent():
    horizon = Horizon()
    horizon.note(newest=3, drawn=90)
    sent = horizon.made
    horizon.note(newest=7, drawn=100)
    horizon.pass_over(2**63 - 1, made=sent)
    early = horizon.safe
    horizon.pass_over(100, made=horizon.made)

    assert (3, 7) == (early, horizon.safe)


def test_a_transaction_that_stays_open_does_not_fill_the_memory():
    """*Before: one note for each new event.*"""
    horizon, many = Horizon(), 100_000
    for n in range(1, many + 1):
        horizon.note(newest=n, drawn=n)
        horizon.pass_over(0, made=n)
    kept = len(horizon._notes)
    horizon.pass_over(many // 2, made=many)
    middle = horizon.safe
    horizon.pass_over(many - 1, made=many)
    nearly = horizon.safe
    horizon.pass_over(many, made=many)

    assert kept <= MOST_NOTES
    assert 0 < middle <= many // 2
    assert middle <= nearly < many
    assert many == horizon.safe


def delay(horizon, begin, end, overlap):
    """Return how many notes the horizon is late, at most, with such transactions."""
    late = []
    for n in range(begin, end):
        horizon.note(newest=n, drawn=n)
        horizon.pass_over(max(0, n - overlap), made=n)
        late.append(n - overlap - horizon.safe)
    return max(late[2 * overlap :])


@pytest.mark.parametrize("overlap", [100, 2_000, 20_000])
def test_transactions_that_always_overlap_delay_little(overlap):
    """*Before: up to twice as long as they overlap.*"""
    assert delay(Horizon(), 1, 4 * overlap, overlap) <= overlap // 100


def test_notes_are_close_again_after_long_transactions():
    horizon = Horizon()
    delay(horizon, 1, 60_000, 20_000)

    assert delay(horizon, 60_000, 70_000, 1_000) <= 10


def test_a_look_that_arrives_late_hides_no_event_when_notes_are_thinned():
    horizon = Horizon()
    for n in range(1, MOST_NOTES + 1):
        horizon.note(newest=n, drawn=n)
    horizon.note(newest=1, drawn=1)
    horizon.pass_over(MOST_NOTES, made=horizon.made)

    assert MOST_NOTES == horizon.safe


class Held:
    """Holds the answer of the first look back, as a slow network would."""

    def __init__(self, store):
        self._rows = store._rows
        self.is_sent, self.release = asyncio.Event(), asyncio.Event()

    async def rows(self, statement, *parameters):
        found = await self._rows(statement, *parameters)
        if not self.is_sent.is_set():
            self.is_sent.set()
            await self.release.wait()
        return found


async def test_an_answer_that_comes_late_lets_no_reader_pass_what_began_since(
    store, migrated_url, monkeypatch
):
    connections = [await asyncpg.connect(migrated_url) for _ in range(2)]
    late, quick = (Writer(c, store.queries.insert_jobs) for c in connections)
    held = Held(store)
    monkeypatch.setattr(store, "_rows", held.rows)
    first = asyncio.create_task(store.latest())
    await held.is_sent.wait()
    await late.begin()
    await late.submit(a_new_job())
    await quick.begin()
    await quick.submit(a_new_job())
    await quick.commit()
    second = asyncio.create_task(store.latest())
    await asyncio.wait({second}, timeout=0.5)  # it may wait for the first, or not
    held.release.set()
    await asyncio.gather(first, second)
    early = await read(store)
    await late.commit()
    for connection in connections:
        await connection.close()

    assert [] == early
    assert 2 == len(await read_in_time(store))


async def test_readers_that_ask_together_draw_one_transaction_id(store, monkeypatch):
    drawn, rows = [], store._rows

    async def counted(statement, *parameters):
        if statement == store.queries.draw_transaction:
            drawn.append(statement)
        return await rows(statement, *parameters)

    monkeypatch.setattr(store, "_rows", counted)
    await store.submit([a_new_job()])
    await asyncio.gather(*(store.latest() for _ in range(50)))

    assert 1 == len(drawn)


async def test_a_reader_that_gives_up_ends_nobody_elses_look(store, monkeypatch):
    await store.submit([a_new_job()])
    held = Held(store)
    monkeypatch.setattr(store, "_rows", held.rows)
    hasty, patient = (asyncio.create_task(store.latest()) for _ in range(2))
    await held.is_sent.wait()
    hasty.cancel()
    held.release.set()
    await asyncio.wait({hasty, patient})

    assert hasty.cancelled()
    assert 1 == patient.result()


async def export(store):
    found = await store.unexported_dead_letters(
        "d_1", span=timedelta(seconds=30), limit=9
    )
    return None if found is None else [job.id for job in found.jobs]


@pytest.fixture
async def doomed(store):
    """Two jobs that wait, in an instance that tells a broker of what fails."""
    jobs = [a_new_job(), a_new_job()]
    await store.submit(jobs)
    await store.begin_dead_letter_export()
    return jobs


@pytest.mark.parametrize("slow", [0, 1], ids=["older", "younger"])
async def test_a_failure_that_commits_late_is_waited_for(store, writers, doomed, slow):
    late, quick = writers[slow], writers[1 - slow]
    await late.fail(doomed[0])
    await quick.fail(doomed[1])
    await quick.commit()
    early = [await export(store) for _ in range(3)]
    await late.commit()
    async with asyncio.timeout(60):
        while not (found := await export(store)):
            await pause()

    assert [None] * 3 == early
    assert [job.id for job in doomed] == found


async def test_with_the_newest_event_as_the_horizon_a_failure_has_no_letter(
    store, writers, doomed, monkeypatch
):
    monkeypatch.setattr(store, "latest", store._look)
    late, quick = writers
    await late.fail(doomed[0])
    await quick.fail(doomed[1])
    await quick.commit()
    found = await store.unexported_dead_letters(
        "d_1", span=timedelta(seconds=30), limit=9
    )
    await store.mark_dead_letters_exported("d_1", upto=found.upto)
    await late.commit()

    assert [doomed[1].id] == [job.id for job in found.jobs]
    assert await export(store) is None
