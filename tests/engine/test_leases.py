"""Workers that are lost, and workers that only seem to be."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from backburner import Context, Snooze, capability
from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.transitions import Limits
from backburner.engine.maintenance.upkeep import Upkeep, UpkeepOptions
from backburner.ports.faults import NoFaults
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.workers import WorkerInfo
from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.heart import SqliteHeart
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.doubles import FrozenClock, SilentNotifier
from backburner.testing.samples import a_new_job

LEASE = timedelta(seconds=10)


@capability("good")
async def good(_ctx: Context, value: int) -> int:
    return value


@capability("long")
async def long(_ctx: Context, _value: int) -> int:
    await asyncio.Event().wait()
    return 1


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
async def store(path, clock):
    store = SqliteStore(Database(path), clock)
    await store.open()
    await store.enlist(WorkerInfo("w", "here", 1, 9, ("default",), clock.now()))
    yield store
    await store.close()


@pytest.fixture
def upkeep(store, clock):
    options = UpkeepOptions(limits=Limits(crashes=1))
    return Upkeep(store, SilentNotifier(), clock, NoFaults(), options)


async def test_a_write_longer_than_the_lease_buries_no_healthy_worker(store, clock):
    loop = asyncio.get_running_loop()
    begun, go = asyncio.Event(), threading.Event()

    def hold(_tx):
        loop.call_soon_threadsafe(begun.set)
        go.wait()
        clock.advance(LEASE * 1.3)  # in which its beats wait for the lock, too

    holding = asyncio.create_task(store.transact(hold))
    await begun.wait()
    looking = asyncio.create_task(store.orphans(lease=LEASE, limit=9))
    loop.call_soon(go.set)
    await asyncio.gather(holding, looking)
    at_once = [worker.id for worker in await store.workers()]
    await store.orphans(lease=LEASE, limit=9)
    later = [worker.id for worker in await store.workers()]

    assert ["w"] == at_once
    assert [] == later


async def alive_after(upkeep, store, clock, *spans):
    """Look after each span; return who was alive each time."""
    alive = []
    for span in spans:
        clock.advance(timedelta(seconds=span))
        await upkeep.rescue()
        alive.append([worker.id for worker in await store.workers()])
    return alive


async def be_away(upkeep, clock, span, monkeypatch):
    """Have the store answer nobody for a while."""

    async def fail():
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(upkeep, "_read_clock", fail)
        clock.advance(timedelta(seconds=span))
        with pytest.raises(StoreUnavailable):
            await upkeep.rescue()


async def test_time_in_which_nobody_could_beat_is_no_silence(
    upkeep, store, clock, monkeypatch
):
    await upkeep.rescue()
    await be_away(upkeep, clock, 30, monkeypatch)
    alive = await alive_after(upkeep, store, clock, 1, 2, 2, 2, 2, 2)

    assert [["w"]] * 5 + [[]] == alive


async def test_time_in_which_it_could_is(upkeep, store, clock):
    await upkeep.rescue()

    assert [["w"], []] == await alive_after(upkeep, store, clock, 10, 1)


@pytest.mark.usefixtures("path")  # breaks into the store of a file
async def test_a_heart_survives_whatever_a_beat_raises(
    working, ended, until, monkeypatch
):
    beats, beat = [], SqliteHeart.beat

    def falter(heart, worker, vitals):
        beats.append(worker)
        if len(beats) == 2:
            raise MemoryError
        return beat(heart, worker, vitals)

    monkeypatch.setattr(SqliteHeart, "beat", falter)
    backburner = await working(good, beat_seconds=0.05, lease_seconds=5)
    await until(lambda: len(beats) >= 5)

    job = await ended(await backburner.submit(good, 1))

    assert JobState.SUCCEEDED == job.state
    assert {backburner._worker.id} == set(beats)


async def test_a_stop_that_is_cancelled_midway_is_still_a_stop(
    submitting, told, threads
):
    backburner = await submitting(long)
    await backburner.start_worker()
    ticket = await backburner.submit(long, 1)
    await told(ticket, "job.started")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await backburner.stop_worker(grace=30)
    job = await ticket.job()

    assert "backburner-heartbeat" not in threads()
    assert [] == list(await backburner.engine.store.workers())
    assert (JobState.QUEUED, 0, 0) == (job.state, job.attempt, job.crashes)


@pytest.mark.usefixtures("path")  # breaks into the store of a file
async def test_a_worker_that_cannot_start_leaves_an_instance_that_closes(
    backburner, threads, monkeypatch
):
    async def refuse(_store, _worker):
        raise StoreUnavailable("busy")

    monkeypatch.setattr(SqliteStore, "enlist", refuse)
    closing = backburner(good)

    with pytest.raises(StoreUnavailable, match="busy"):
        async with closing:
            await closing.start_worker()

    assert [] == threads()
    assert closing._parts._engine is None


async def test_a_job_that_expires_is_counted_as_ended(
    submitting, ended, until, finished
):
    @capability("expires")
    async def expires(_ctx: Context, value: int) -> int:
        return value

    backburner = await submitting(expires)
    past = datetime.fromtimestamp(backburner.engine.now() / 1000, UTC)

    job = await ended(await backburner.submit(expires, 1, start_by=past))
    await until(lambda: finished("expires"))

    assert (JobState.FAILED, "EXPIRED") == (job.state, job.error.code)
    assert 1 == finished("expires")


async def test_a_job_that_loses_its_last_worker_is_counted_as_ended(
    store, clock, upkeep, finished
):
    [submitted] = await store.submit([a_new_job(capability="stalls")])
    await store.claim("w", "token", [ClaimRequest("default", 1)], now=clock.now())
    clock.advance(LEASE * 2)

    await upkeep.rescue()

    [job] = await store.find([submitted.id])
    assert (JobState.FAILED, "WORKER_LOST") == (job.state, job.error.code)
    assert 1 == finished("stalls")


async def test_a_job_that_is_kept_apart_does_not_pay_for_that_wait(
    submitting, ended, write
):
    backburner = await submitting(good, beat_seconds=0.05)
    tickets = await backburner.submit_many(good, [1, 2, 3])
    allowed = 24 * 3600 * 1000
    with write() as connection:
        connection.execute("UPDATE jobs SET crashes = 2, throttled = ?", (allowed,))
    await backburner.start_worker()

    jobs = [await ended(ticket) for ticket in tickets]

    assert [(JobState.SUCCEEDED, allowed)] * 3 == [(j.state, j.throttled) for j in jobs]


async def test_a_capability_may_be_more_patient_than_the_setting(
    submitting, told, write
):
    @capability("patient", patience=timedelta(hours=50))
    async def patient(_ctx: Context, _value: int) -> int | Snooze:
        return Snooze(timedelta(hours=1))

    backburner = await submitting(patient, throttle_limit_hours=24)
    ticket = await backburner.submit(patient, 7)
    day = 24 * 3600 * 1000
    with write() as connection:
        connection.execute("UPDATE jobs SET throttled = ?", (day,))
    await backburner.start_worker()

    await told(ticket, "job.scheduled")

    job = await ticket.job()
    assert (JobState.SCHEDULED, day + day // 24) == (job.state, job.throttled)
