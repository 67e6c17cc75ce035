"""Callers that wait for the file together, and a peer that does not let go of it."""

import asyncio
import sys
import threading

import pytest

from backburner import Context, capability
from backburner.clock import SystemClock
from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.job import JobState, Submitted
from backburner.engine.ticket import Ticket
from backburner.ports.store.maintenance import JobFilter
from backburner.stores.sqlite import writer
from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.broker.acts import pause
from backburner.testing.samples import a_new_job
from tests import warm

HOLD = """
import fcntl, sys
with open(sys.argv[1], "a") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@capability("good")
async def good(_ctx: Context, value: int) -> int:
    return value


@pytest.mark.usefixtures("path")
async def test_a_body_that_raises_an_error_of_the_system_fails_alone(submitting):
    backburner = await submitting(good)
    loop = asyncio.get_running_loop()
    begun, go = asyncio.Event(), threading.Event()

    def hold(_tx):
        loop.call_soon_threadsafe(begun.set)
        go.wait()

    def bad(_tx):
        raise FileNotFoundError(2, "a file of one's own")

    holding = asyncio.create_task(backburner.transact(hold))
    await begun.wait()
    calls = [backburner.transact(bad), *(backburner.submit(good, i) for i in range(3))]
    waiting = [asyncio.create_task(call) for call in calls]
    loop.call_soon(go.set)
    failed, *others = await asyncio.gather(*waiting, return_exceptions=True)
    await holding

    assert FileNotFoundError(2, "a file of one's own").args == failed.args
    assert [Ticket] * 3 == [type(answer) for answer in others]


@pytest.fixture
async def store(path, monkeypatch):
    monkeypatch.setattr(writer, "LONGEST_WAIT", 0.4)
    store = SqliteStore(Database(path), SystemClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def peer(path):
    """A process that holds the file's lock until its input ends."""
    process = warm.Popen(
        [sys.executable, "-c", HOLD, f"{path}-lock"],
        stdin=warm.PIPE,
        stdout=warm.PIPE,
    )
    assert b"held\n" == process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


async def test_nobody_waits_without_limit_for_a_peer_that_froze(store, peer):
    async with asyncio.timeout(60):
        early = await asyncio.gather(
            *(store.submit([a_new_job()]) for _ in range(3)), return_exceptions=True
        )
        [late] = await asyncio.gather(
            store.submit([a_new_job()]), return_exceptions=True
        )

    assert [StoreUnavailable] * 4 == [type(answer) for answer in (*early, late)]
    assert peer.poll() is None


async def test_what_was_given_up_is_not_done_after_all(store, peer):
    given_up = await asyncio.gather(
        *(store.submit([a_new_job()]) for _ in range(3)), return_exceptions=True
    )
    peer.communicate()
    job = a_new_job()
    async with asyncio.timeout(60):
        answer = await accepted(store, job)

    stored = await store.jobs(JobFilter(), before=None, limit=9)
    assert [StoreUnavailable] * 3 == [type(answer) for answer in given_up]
    assert [Submitted(job.id, JobState.QUEUED)] == answer
    assert [job.id] == [found.id for found in stored]


async def accepted(store, job):
    """Submit until the store has noticed that the peer let go."""
    while True:
        try:
            return await store.submit([job])
        except StoreUnavailable:
            await pause()
