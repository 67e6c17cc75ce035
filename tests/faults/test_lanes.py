"""A lane is the whole fleet's: processes share it, and it outlives those that die."""

import asyncio
from contextlib import suppress

import pytest
from laned import LANE, call

from backburner import Backburner
from backburner.domain.events.event import STALLED, THROTTLED
from backburner.domain.jobs.job import JobState
from backburner.settings import Settings

pytestmark = pytest.mark.one_store

PATIENCE = 180.0


class Provider:
    """A provider on loopback that counts who calls, and when, by its own clock."""

    def __init__(self):
        self.answers = []
        self.calls = []
        self.refused_at = []
        self.at_once = self.most = 0
        self.is_open = asyncio.Event()
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1/complete"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def workers(self):
        return {worker for _, worker in self.calls}

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            worker = head.partition("x-worker: ")[2].split()[0]
            self.calls.append((self._now(), worker))
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            try:
                await self._answer(reader, writer)
            finally:
                self.at_once -= 1
        writer.transport.abort()

    async def _answer(self, reader, writer):
        opened = asyncio.create_task(self.is_open.wait())
        gone = asyncio.create_task(reader.read())
        await asyncio.wait({opened, gone}, return_when=asyncio.FIRST_COMPLETED)
        is_served = opened.done()
        opened.cancel()
        gone.cancel()
        if is_served:
            status, more = self.answers.pop(0) if self.answers else (200, "")
            if status != 200:
                self.refused_at.append(self._now())
            writer.write(
                f"HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n{more}"
                "Connection: close\r\n\r\n".encode()
            )
            await writer.drain()

    def _now(self):
        return asyncio.get_running_loop().time()


@pytest.fixture
async def provider():
    async with Provider() as provider:
        yield provider


@pytest.fixture
async def backburner(fleet):
    """An instance that submits and looks, and runs nothing."""
    settings = Settings(store=fleet.url, poll_seconds=0.2)
    async with Backburner(settings, capabilities=[call]) as backburner:
        yield backburner


async def all_end(tickets):
    jobs = await asyncio.gather(*(t.wait(timeout=PATIENCE) for t in tickets))
    return {job.state for job in jobs}


async def seen(ticket, kind):
    async with asyncio.timeout(PATIENCE):
        async for event in ticket.events():
            if event.type == kind:
                return event
    raise AssertionError(f"job {ticket.id} ended without {kind}")


async def until(is_so, eventually):
    async def look():
        return is_so()

    await eventually(look)


async def test_no_more_calls_are_under_way_than_the_lane_allows_the_fleet(
    fleet, backburner, provider
):
    for worker in [fleet.worker("laned") for _ in range(2)]:
        await worker.ready()
    provider.is_open.set()
    tickets = await backburner.submit_many(call, [provider.url] * 60)

    assert {JobState.SUCCEEDED} == await all_end(tickets)
    assert provider.most <= 3
    assert 60 == len(provider.calls)
    assert 2 == len(provider.workers)


@pytest.mark.thorough
async def test_without_the_lane_more_calls_are_under_way(
    fleet, backburner, provider, eventually
):
    await fleet.worker("unlaned").ready()
    tickets = await backburner.submit_many(call, [provider.url] * 6)
    await until(lambda: provider.at_once > 3, eventually)
    provider.is_open.set()

    assert {JobState.SUCCEEDED} == await all_end(tickets)


async def test_a_refusal_that_one_worker_hears_keeps_the_others_off(
    fleet, backburner, provider
):
    for worker in [fleet.worker("laned") for _ in range(2)]:
        await worker.ready()
    provider.is_open.set()
    provider.answers = [(429, "Retry-After: 2\r\n")]
    tickets = await backburner.submit_many(call, [provider.url] * 20)
    states = await all_end(tickets)

    refused = provider.refused_at[0]
    # What was under way, or had its permit, when it was refused may still arrive.
    beside = [at for at, _ in provider.calls if refused < at < refused + 1.9]
    jobs = await backburner.engine.store.find([ticket.id for ticket in tickets])
    assert {JobState.SUCCEEDED} == states
    assert len(beside) <= 3
    assert {1} == {job.attempt for job in jobs}
    assert 21 == len(provider.calls)


async def test_what_a_killed_worker_held_comes_back(
    fleet, backburner, provider, eventually
):
    first = await fleet.worker("laned").ready()
    tickets = await backburner.submit_many(call, [provider.url] * 6)
    await until(lambda: provider.at_once == 3, eventually)
    await fleet.worker("laned").ready()
    first.kill()
    provider.is_open.set()

    assert {JobState.SUCCEEDED} == await all_end(tickets)
    assert provider.most <= 3
    jobs = await backburner.engine.store.find([ticket.id for ticket in tickets])
    assert sum(job.crashes for job in jobs) >= 3
    [view] = await backburner.engine.store.lanes()
    assert (LANE, 0) == (view.state.name, view.in_use)


@pytest.mark.thorough
async def test_if_permits_outlive_their_workers_the_lane_stays_shut(
    fleet, backburner, provider, eventually
):
    first = await fleet.worker("keeps_permits").ready()
    tickets = await backburner.submit_many(call, [provider.url] * 3)
    await until(lambda: provider.at_once == 3, eventually)
    first.kill()
    provider.is_open.set()
    await fleet.worker("keeps_permits").ready()
    for ticket in tickets:
        stalled = await seen(ticket, STALLED)
        async with asyncio.timeout(PATIENCE):
            async for event in ticket.events(after=stalled.n):
                if event.type == THROTTLED:
                    break

    assert 3 == len(provider.calls)
