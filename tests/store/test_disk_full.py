"""A disk that is full, as SQLite sees it: no page may be added to the file."""

import asyncio
from contextlib import suppress

import pytest

from backburner import Context, JobState, Settings, capability
from backburner.backburner import Backburner
from backburner.domain.errors import StoreFull
from backburner.testing.samples import a_new_job

BIG = "x" * 60_000  # the most that stays in its row


def fill_the_disk(tx):
    pages = tx.driver.execute("PRAGMA page_count").fetchone()[0]
    tx.driver.execute(f"PRAGMA max_page_count = {pages}")


def make_room(tx):
    tx.driver.execute("PRAGMA max_page_count = 1000000")


async def make_room_at_last(store):
    """Ask again, as any caller may: it can share a commit with what finds no room."""
    while True:
        with suppress(StoreFull):
            return await store.transact(make_room)


def check(tx):
    return tx.driver.execute("PRAGMA integrity_check").fetchone()[0]


async def test_a_submit_that_finds_no_room_is_refused_and_leaves_nothing(store):
    kept = a_new_job()
    lost = a_new_job(input=f'"{BIG}"')
    await store.submit([kept])
    await store.transact(fill_the_disk)

    with pytest.raises(StoreFull):
        await store.submit([lost])

    assert [kept.id] == [job.id for job in await store.find([kept.id, lost.id])]
    assert "ok" == await store.transact(check)


async def test_a_submit_is_taken_again_when_there_is_room(store):
    job = a_new_job(input=f'"{BIG}"')
    await store.transact(fill_the_disk)
    with pytest.raises(StoreFull):
        await store.submit([job])

    await store.transact(make_room)
    await store.submit([job])

    assert BIG in (await store.find([job.id]))[0].input
    assert "ok" == await store.transact(check)


async def test_an_outcome_that_finds_no_room_waits_for_it(path):
    started, go_on, refused = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @capability("write")
    async def write(_ctx: Context, _value: None) -> str:
        started.set()
        await go_on.wait()
        return BIG

    class Tries:
        def __init__(self):
            self.names = []

        def hit(self, name):
            self.names.append(name)
            if self.names.count("worker.settling") == 2:
                refused.set()

    settings = Settings(store=f"sqlite:///{path}")
    async with Backburner(settings, capabilities=[write], faults=Tries()) as bb:
        await bb.start_worker()
        ticket = await bb.submit(write, None)
        await started.wait()
        await bb.engine.store.transact(fill_the_disk)
        go_on.set()
        await refused.wait()
        during = await ticket.job()
        await make_room_at_last(bb.engine.store)
        after = await ticket.wait(timeout=60)

    assert JobState.RUNNING is during.state
    assert (JobState.SUCCEEDED, f'"{BIG}"') == (after.state, after.output)
