"""Readers that are ahead, slow or quiet, and what others have of it."""

import asyncio
from contextlib import aclosing
from datetime import timedelta

import pytest

from backburner import Context, capability
from backburner.domain.jobs.job import Owner
from backburner.engine import tail
from backburner.engine.watch import PAGE
from backburner.ports.notifier import Notification

QUIET, BUSY = Owner("quiet", "1"), Owner("busy", "1")
LATER = timedelta(hours=1)
MANY = 12_000

EVENT = """
INSERT INTO events (job, n, type, at, data, tenant, "user")
SELECT seq, ?, ?, ?, ?, tenant, "user" FROM jobs WHERE seq = 1
"""


@capability("good")
async def good(_ctx: Context, value: int) -> int:
    return value


@pytest.fixture
async def backburner(submitting):
    return await submitting(good, poll_seconds=60)


@pytest.fixture
def talkative(backburner, write):
    """A job that told of its progress many times between two attempts."""

    async def talkative():
        ticket = await backburner.submit(good, 1, delay=LATER, owner=BUSY)
        started = '{"attempt": 1, "generation": 0, "worker": "w"}'
        progress = '{"done": 1, "total": 2}'
        with write() as connection:
            connection.execute(EVENT, (2, "job.started", 1, started))
            told = [(n, "job.progress", 2, progress) for n in range(3, MANY)]
            connection.executemany(EVENT, told)
            connection.execute(EVENT, (MANY, "job.retrying", 3, "{}"))
            again = started.replace("1", "2", 1)
            connection.execute(EVENT, (MANY + 1, "job.started", 4, again))
            connection.execute("UPDATE jobs SET events = ?", (MANY + 1,))
        return ticket

    return talkative


@pytest.fixture
def looks(backburner, monkeypatch):
    """The cursors that streams of this deployment looked from."""
    store, after_each = backburner.engine.store, []
    stream = store.stream

    async def look(owner, *, after, **more):
        after_each.append(after)
        return await stream(owner, after=after, **more)

    monkeypatch.setattr(store, "stream", look)
    return after_each


@pytest.mark.parametrize("after", [99, 2**40])
async def test_a_reader_who_is_ahead_ends_with_the_job_and_disturbs_nobody(
    backburner, until, after
):
    ticket = await backburner.submit(good, 1, delay=LATER)
    job = await ticket.job()
    ahead = asyncio.create_task(_all(backburner.engine.events(job, after=after)))
    honest = asyncio.create_task(_all(backburner.engine.events(job)))
    await until(lambda: len(backburner.engine._watch._readers.get(job.seq, ())) == 2)

    await ticket.cancel()
    async with asyncio.timeout(60):
        seen = await asyncio.gather(ahead, honest)

    assert [[], ["job.scheduled", "job.cancelled"]] == seen


async def test_a_slow_readers_buffer_is_bounded_and_it_still_gets_all(
    backburner, talkative, until
):
    job = await (await talkative()).job()
    other = await backburner.submit(good, 2, delay=LATER)

    async with aclosing(backburner.engine.events(job)) as events:
        first = await anext(events)
        [reader] = backburner.engine._watch._readers[job.seq]
        async with aclosing(other.events()) as others, asyncio.timeout(60):
            beside = await anext(others)
        await until(lambda: len(reader.events) >= PAGE)
        buffered = len(reader.events)
        rest = [(await anext(events)).n for _ in range(MANY)]

    assert (1, 1) == (first.n, beside.n)
    assert buffered <= 2 * PAGE
    assert list(range(2, MANY + 2)) == rest


async def test_the_history_of_attempts_is_whole_however_much_progress_was_told(
    backburner, talkative
):
    job = await (await talkative()).job()

    attempts = await backburner.engine.attempts(job)

    assert [(1, 3), (4, None)] == [(a.started_at, a.finished_at) for a in attempts]


async def test_a_quiet_owners_stream_looks_at_others_events_once(
    backburner, talkative, looks, until
):
    await talkative()
    latest = await backburner.engine.store.latest()
    reading = asyncio.create_task(_first(backburner.engine.stream(QUIET)))
    await until(lambda: len(looks) == 1)

    await backburner.submit(good, 1, delay=LATER, owner=BUSY)
    await until(lambda: len(looks) == 2)
    mine = await backburner.submit(good, 1, delay=LATER, owner=QUIET)
    async with asyncio.timeout(60):
        event = await reading

    assert [0, latest] == looks[:2]
    assert mine.id == event.subject


async def test_rings_in_quick_succession_are_one_look_of_a_stream(
    backburner, looks, until, monkeypatch
):
    monkeypatch.setattr(tail, "SETTLE_SECONDS", 0.3)
    reading = asyncio.create_task(_first(backburner.engine.stream(QUIET)))
    await until(lambda: len(looks) == 1)

    for _ in range(50):
        backburner.engine._watch._hear(Notification.EVENTS)
        await asyncio.to_thread(lambda: None)
    await backburner.submit(good, 1, delay=LATER, owner=QUIET)
    await reading

    assert len(looks) < 10


async def _all(events):
    return [event.type async for event in events]


async def _first(events):
    async with aclosing(events):
        return await anext(events)
