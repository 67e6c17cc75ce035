"""An application turns engine events into its own: each once, by any process."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from backburner import (
    App,
    Backburner,
    ConfigurationError,
    Context,
    EngineEvent,
    Queue,
    Rate,
    RetryPolicy,
    Transaction,
    TransientError,
    Translation,
    capability,
)
from backburner.engine.submit.submission import LOCAL
from backburner.ports.store.events import Topic
from backburner.settings import Settings
from backburner.testing.broker.acts import pause

AT_ONCE = RetryPolicy(max_attempts=2, base=timedelta(), jitter=timedelta())
TYPES = ["job.started", "job.retrying", "job.succeeded", "job.failed"]
SONGS = Topic(name="songs")


@capability("songs.sing", retry=AT_ONCE)
async def sing(ctx: Context, failures: int) -> int:
    if ctx.job.attempt <= failures:
        raise TransientError("not yet")
    return ctx.job.attempt


@capability("others.work")
async def work(_ctx: Context, value: int) -> int:
    return value


def tell(tx: Transaction, told: EngineEvent) -> None:
    assert told.owner is not None
    said = {"job": told.job_id, "type": told.type, "capability": told.capability}
    tx.publish("songs", "song:told", said, to=told.owner)


def songs(translate=tell, types=TYPES, **more):
    return App(
        "songs",
        capabilities=[sing],
        translates=Translation(types, translate),
        **more,
    )


@pytest.fixture
async def opened(store_url):
    """Open instances over one database, with or without a worker."""
    async with AsyncExitStack() as stack:

        async def start(*apps, works=True):
            settings = Settings(store=store_url, grace_seconds=0, poll_seconds=0.2)
            backburner = Backburner(settings, apps=apps, capabilities=[work])
            await stack.enter_async_context(backburner)
            if works:
                await backburner.start_worker()
            return backburner

        yield start


async def told(backburner):
    page = await backburner.engine.store.stream(LOCAL, after=0, limit=999, topic=SONGS)
    return [(event.data["job"], event.data["type"]) for event in page.events]


async def all_told(backburner, count):
    async with asyncio.timeout(60):
        while len(found := await told(backburner)) < count:
            await pause()
    return found


async def test_the_events_of_an_applications_jobs_are_translated_in_order(opened):
    backburner = await opened(songs())
    other = await backburner.submit(work, 1)
    await other.result()
    good, bad = await backburner.submit(sing, 1), await backburner.submit(sing, 9)
    found = await all_told(backburner, 8)

    started, retrying = "job.started", "job.retrying"
    assert [started, retrying, started, "job.succeeded"] == [
        type_ for job, type_ in found if job == good.id
    ]
    assert [started, retrying, started, "job.failed"] == [
        type_ for job, type_ in found if job == bad.id
    ]
    assert 8 == len(found)


async def test_of_many_processes_one_translates_each_event(opened):
    instances = [await opened(songs()) for _ in range(3)]
    for _ in range(20):
        await instances[0].submit(sing, 0)
    found = await all_told(instances[0], 40)
    last = await instances[0].submit(sing, 0)
    await last.result()
    found = await all_told(instances[0], 42)

    assert 42 == len(found) == len({*found})


async def test_what_happened_while_nobody_translated_is_translated_later(opened):
    first = await opened(songs(), works=False)
    jobs = [await first.submit(sing, 0) for _ in range(5)]
    await first.__aexit__(None, None, None)
    plain = await opened(App("songs", capabilities=[sing]))
    for job in jobs:
        await plain.engine.wait(job.id, timeout=60)
    await opened(songs(), works=False)
    found = await all_told(plain, 10)

    assert {(job.id, "job.succeeded") for job in jobs} <= {*found}
    assert 10 == len(found) == len({*found})


async def test_one_that_fails_is_tried_again_and_nothing_of_it_is_left(opened):
    refused, tries = set(), []

    def translate(tx, event):
        tell(tx, event)
        if event.job_id in refused:
            tries.append(event.job_id)
            raise LookupError("not now")

    backburner = await opened(songs(translate, types=["job.started"]), works=False)
    jobs = [await backburner.submit(sing, 0) for _ in range(3)]
    refused.add(jobs[1].id)
    await backburner.start_worker()
    async with asyncio.timeout(60):
        while len(tries) < 3:
            await pause()
    early = {job for job, _ in await told(backburner)}
    refused.clear()
    late = await all_told(backburner, 3)

    assert jobs[1].id not in early
    assert sorted(job.id for job in jobs) == sorted(job for job, _ in late)


async def test_a_queue_that_is_full_is_told_of_by_its_name(opened):
    def translate(tx, event):
        assert event.owner is None
        assert event.job_id is None
        said = {"job": event.queue, "type": event.type}
        tx.publish("songs", "queue:full", said, to=LOCAL)

    limited = Queue("default", rate=Rate(1, timedelta(minutes=10)))
    types = ["queue.throttled"]
    backburner = await opened(songs(translate, types=types, queues=[limited]))
    for _ in range(2):
        await backburner.submit(sing, 0)

    assert [("default", "queue.throttled")] == await all_told(backburner, 1)


@pytest.mark.parametrize("types", [["job.output.delta"], ["flow.started"], []])
async def test_a_type_that_cannot_be_translated_refuses_the_start(opened, types):
    with pytest.raises(ConfigurationError, match="'songs' cannot translate"):
        await opened(songs(types=types))
