"""Readers of a job that goes away while they read."""

from contextlib import aclosing

import pytest

from backburner.domain.jobs import transitions
from backburner.engine.watch import Watch
from backburner.testing.doubles import SilentNotifier
from backburner.testing.samples import NOON
from backburner.testing.store.acts import DAY, NO_RETENTION, find, move, submit


@pytest.fixture
async def watch(store):
    watch = Watch(store, SilentNotifier(), poll=0.01, idle=0.05)
    watch.start()
    yield watch
    await watch.stop()


@pytest.fixture
async def ended(store):
    """A job that was cancelled."""
    job = await find(store, await submit(store))
    await store.move([move(job, transitions.cancel(job, "enough", now=NOON))])
    return await find(store, job.id)


async def is_pruned(store):
    return await store.prune(keep=NO_RETENTION, now=NOON + DAY, limit=9)


async def test_a_job_deleted_before_it_is_read_ends_the_reading(store, watch, ended):
    pruned = await is_pruned(store)

    seen = [event async for event in watch.job(ended)]

    assert [ended.id] == list(pruned)
    assert [] == seen


async def test_a_job_that_ends_and_is_deleted_unseen_ends_the_reading(store, watch):
    job = await find(store, await submit(store))
    async with aclosing(watch.job(job)) as events:
        first = await anext(events)
        await watch.stop()  # it looks no more, so what comes now is missed
        await store.move([move(job, transitions.cancel(job, "enough", now=NOON))])
        await is_pruned(store)

        rest = [event async for event in events]

    assert "job.queued" == first.type
    assert [] == rest


async def test_a_reader_who_is_ahead_of_a_job_ends_with_it(store, watch):
    job = await find(store, await submit(store))
    async with aclosing(watch.job(job, after=1_000)) as events:
        await store.move([move(job, transitions.cancel(job, "enough", now=NOON))])

        seen = [event async for event in events]

    assert [] == seen


async def test_silence_alone_ends_nothing(store, watch):
    job = await find(store, await submit(store))
    async with aclosing(watch.job(job, after=1)) as events:
        looked = watch._is_over
        asked = []

        async def ask(*which):
            asked.append(await looked(*which))
            if len(asked) == 3:
                change = transitions.cancel(job, "enough", now=NOON)
                await store.move([move(job, change)])
            return asked[-1]

        watch._is_over = ask
        seen = [event.type async for event in events]

    assert [False, False, False] == asked[:3]
    assert ["job.cancelled"] == seen
