"""Jobs that have ended but are not settled yet."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
import sqlalchemy as sa
import structlog
from sqlalchemy.ext.asyncio import create_async_engine

from backburner import Backburner, Context, RetryPolicy, capability
from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.transitions import SETTLEMENT_FAILED
from backburner.ports.store.jobs import ClaimRequest
from backburner.settings import Settings
from backburner.testing.samples import NOON

SLOTS = 20
JOBS = 300
RUNNING = sa.text("SELECT count(*) FROM jobs WHERE state = 'running'")


@pytest.fixture
def seen():
    return []


@pytest.fixture
def looks(seen):
    """A capability whose settlement counts the jobs that run."""

    @capability("looks")
    async def looks(ctx: Context, value: int) -> int:
        ctx.at_settlement(
            lambda tx: seen.append(tx.connection.execute(RUNNING).scalar_one())
        )
        return value

    return looks


@pytest.fixture
async def opened(store_url):
    """Open instances over each kind of database, without workers."""
    async with AsyncExitStack() as stack:

        async def start(*capabilities, **settings):
            given = {"slots": SLOTS, "grace_seconds": 30, **settings}
            backburner = Backburner(
                Settings(store=store_url, **given), capabilities=capabilities
            )
            return await stack.enter_async_context(backburner)

        yield start


async def test_jobs_that_are_not_settled_yet_count_against_slots(opened, looks, seen):
    backburner = await opened(looks)
    tickets = await backburner.submit_many(looks, range(JOBS))
    await backburner.start_worker()
    async with asyncio.timeout(60):
        jobs = [await ticket.wait() for ticket in tickets]

    assert {JobState.SUCCEEDED} == {job.state for job in jobs}
    assert JOBS <= len(seen)
    assert SLOTS >= max(seen)


@capability("good")
async def good(_ctx: Context, value: int) -> int:
    return value


class Overflowing(RetryPolicy):
    """A policy of somebody else's, with a fault."""

    def delay(self, _attempt, _roll):
        raise OverflowError("it is too long")


@capability("bad", retry=Overflowing(max_attempts=3))
async def bad(_ctx: Context, _value: int) -> int:
    raise ValueError("no")


@pytest.fixture
async def lock(migrated_url):
    """Hold a lock that bodies wait for; return how to let go."""
    engine = create_async_engine(
        sa.make_url(migrated_url).set(drivername="postgresql+asyncpg")
    )
    async with engine.connect() as connection:
        await connection.execute(sa.text("SELECT pg_advisory_lock(16)"))

        async def let_go():
            await connection.execute(sa.text("SELECT pg_advisory_unlock(16)"))

        yield let_go
    await engine.dispose()


@pytest.fixture
def waits():
    """A capability whose settlement waits for the lock, and its settlements."""
    begun = asyncio.Event()

    def body(tx):
        begun.set()
        tx.connection.execute(sa.text("SELECT pg_advisory_xact_lock(16)"))

    @capability("waits")
    async def waits(ctx: Context, value: int) -> int:
        ctx.at_settlement(body)
        return value

    return waits, begun


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_a_worker_that_stops_settles_what_has_ended_within_its_grace(
    opened, waits, lock
):
    waiting, begun = waits
    backburner = await opened(waiting)
    tickets = await backburner.submit_many(waiting, range(5))
    await backburner.start_worker()
    await begun.wait()
    stopping = asyncio.ensure_future(backburner.stop_worker(grace=60))
    done, _ = await asyncio.wait({stopping}, timeout=0.3)
    await lock()
    jobs = [await ticket.wait() for ticket in tickets]

    assert not done
    assert await stopping
    assert {(JobState.SUCCEEDED, 0)} == {(job.state, job.crashes) for job in jobs}


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_a_worker_whose_grace_is_over_hands_back_what_is_not_settled(
    opened, waits, lock, monkeypatch
):
    monkeypatch.setattr("backburner.engine.run.settler.DRAIN_SECONDS", 0.5)
    waiting, begun = waits
    backburner = await opened(waiting)
    tickets = await backburner.submit_many(waiting, range(5))
    await backburner.start_worker()
    await begun.wait()
    is_finished = await backburner.stop_worker(grace=0.1)
    handed_back = [await ticket.job() for ticket in tickets]
    await lock()
    await backburner.start_worker()
    jobs = [await ticket.wait() for ticket in tickets]

    assert not is_finished
    assert {JobState.QUEUED} == {job.state for job in handed_back}
    assert {(JobState.SUCCEEDED, 0, 1)} == {
        (job.state, job.crashes, job.attempt) for job in jobs
    }


async def test_an_outcome_that_nothing_can_be_made_of_is_a_failure(opened):
    backburner = await opened(bad)
    await backburner.start_worker()
    job = await (await backburner.submit(bad, 1)).wait(timeout=60)

    assert (JobState.FAILED, SETTLEMENT_FAILED) == (job.state, job.error.code)
    assert "OverflowError" in job.error.message


async def test_an_attempt_that_cannot_be_begun_has_failed(opened):
    odd = replace(good, name="odd", retry=RetryPolicy(max_attempts=1))
    object.__setattr__(odd, "timeout", 30)  # past the checks of its making
    backburner = await opened(good, odd)
    await backburner.start_worker()
    job = await (await backburner.submit("odd", 1)).wait(timeout=60)
    other = await (await backburner.submit(good, 1)).wait(timeout=60)

    assert (JobState.FAILED, "UNEXPECTED") == (job.state, job.error.code)
    assert "AttributeError" in job.error.message
    assert JobState.SUCCEEDED is other.state


async def test_a_job_that_is_held_and_not_worked_on_is_handed_back(opened):
    elsewhere = replace(good, name="elsewhere", queue="elsewhere")
    backburner = await opened(good, elsewhere, queues=["default"], beat_seconds=0.1)
    store = backburner.engine.store
    await backburner.start_worker()
    [worker] = await store.workers()
    ticket = await backburner.submit("elsewhere", 1)
    # As a claim that was committed, but whose answer never came.
    claim_requests = [ClaimRequest("elsewhere", 1)]
    [claim] = await store.claim(worker.id, "t" * 16, claim_requests, now=NOON)
    async with asyncio.timeout(60):
        async for event in ticket.events():
            if event.type == "job.queued" and event.n > claim.events:
                break
    job = await ticket.job()

    assert (JobState.QUEUED, 0, 0) == (job.state, job.crashes, job.attempt)


def refuse(*_):
    raise BrokenPipeError


@pytest.fixture
def broken_log():
    """Configure a log of which every line raises, as a host may."""
    structlog.configure(processors=[refuse])
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("broken_log")
async def test_a_log_that_raises_stops_nothing(opened, monkeypatch):
    backburner = await opened(good)
    store, faults = backburner.engine.store, [StoreUnavailable("no"), ValueError("no")]
    settle, claim = store.settle, store.claim

    async def settles(settlements):
        if faults:
            raise faults.pop()
        return await settle(settlements)

    async def claims(*args, **options):
        if len(faults) == 1:
            raise ValueError("no")
        return await claim(*args, **options)

    monkeypatch.setattr(store, "settle", settles)
    monkeypatch.setattr(store, "claim", claims)
    await backburner.start_worker()
    jobs = [await (await backburner.submit(good, n)).wait(timeout=60) for n in range(3)]

    assert {JobState.SUCCEEDED} == {job.state for job in jobs}


async def test_what_is_told_of_a_settlement_may_raise(opened, monkeypatch):
    backburner = await opened(good)
    touch, faults = backburner.engine.batches.touch, [1, 1]

    def touches(numbers):
        if faults:
            raise ValueError(faults.pop())
        return touch(numbers)

    monkeypatch.setattr(backburner.engine.batches, "touch", touches)
    await backburner.start_worker()
    jobs = [await (await backburner.submit(good, n)).wait(timeout=60) for n in range(3)]

    assert {JobState.SUCCEEDED} == {job.state for job in jobs}
    assert not faults
