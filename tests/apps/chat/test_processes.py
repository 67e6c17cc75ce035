"""Two servers and workers that are killed, as processes over one database."""

import asyncio
from contextlib import AsyncExitStack
from itertools import count

import httpx2
import pytest

from backburner import Backburner
from backburner.domain.events.event import SUCCEEDED
from backburner.ports.store.maintenance import JobFilter
from backburner.settings import Settings
from backburner.testing.broker.acts import pause
from backburner_apps.chat import app as chat_app
from backburner_apps.chat import personalities
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.tables import memories, requests
from tests.apps.chat.conftest import ADA, body
from tests.apps.programs import launch
from tests.ports import held_port

SAME = 100
LONG = "word " * 15 + "[[mock: drip]]"
"""What the mock takes most of a second to repeat."""
KILLED_AFTER = 4
"""Replies that a worker stores before it is killed."""


class Fleet:
    """Processes over one database."""

    def __init__(self, folder, settings):
        self._folder, self._settings = folder, settings
        self._names = count()
        self.running = []

    async def start(self, *arguments):
        """Start one and wait until it says that it is ready."""
        path = self._folder / f"{next(self._names)}.log"
        process = await asyncio.to_thread(
            launch, path, *arguments, cwd=self._folder, settings=self._settings
        )
        self.running.append(process)
        async with asyncio.timeout(120):
            while "Backburner " not in path.read_text():
                assert process.poll() is None, path.read_text()
                await pause()
        return process

    async def start_worker(self):
        return await self.start("worker", "--dev", "--app", "chat")

    def kill(self):
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
async def backburner(store_url):
    """The database as the test looks into it."""
    settings = Settings(store=store_url, ai=("mock",))
    async with Backburner(
        settings, apps=[chat_app], app_settings=[ChatSettings()]
    ) as backburner:
        await backburner.transact(lambda tx: personalities.create(tx, "default", ADA))
        yield backburner


@pytest.fixture
async def fleet(tmp_path, store_url, backburner):
    del backburner  # it has made the tables
    found = Fleet(
        tmp_path,
        {
            "BACKBURNER_STORE": store_url,
            "BACKBURNER_POLL_SECONDS": "0.3",
            "BACKBURNER_BEAT_SECONDS": "0.5",
            "BACKBURNER_LEASE_SECONDS": "2",
            "BACKBURNER_CRASH_LIMIT": "1000",
            "BACKBURNER_CHAT_DUPLICATE_SECONDS": "3600",
            "BACKBURNER_CHAT_USER_REQUESTS": "0",
        },
    )
    yield found
    found.kill()


async def rows(backburner, table):
    def look(view):
        return view.connection.execute(table.select()).mappings().all()

    return await backburner.read(look)


async def replied(backburner):
    return [row for row in await rows(backburner, requests) if row["reply"] is not None]


@pytest.mark.parametrize(
    "count", [pytest.param(18, id="few"), pytest.param(200, marks=pytest.mark.chaos)]
)
async def test_conversations_over_two_servers_and_workers_that_are_killed(
    fleet, backburner, record_property, count
):
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(2):
            port = stack.enter_context(held_port())
            serve = ("serve", "chat", "--dev", "--no-worker", "--port", str(port))
            await fleet.start(*serve)
            client = httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=900, trust_env=False
            )
            clients.append(await stack.enter_async_context(client))
        worker = await fleet.start_worker()

        same = [
            clients[n % 2].post("/ai/generate", json=body(requestId="same"))
            for n in range(SAME)
        ]
        answers = await asyncio.gather(*same)
        talks = [
            clients[n % 2].post(
                "/ai/generate",
                json=body(f"message {n} {LONG}", requestId=f"talk-{n}"),
            )
            for n in range(count)
        ]
        talking = asyncio.gather(*talks)
        kills = await kill_workers(fleet, backburner, worker, count + 1)
        replies = await talking

    codes = sorted(answer.status_code for answer in answers)
    assert [200] + [429] * (SAME - 1) == codes
    refused = [answer.json() for answer in answers if answer.status_code == 429]
    assert [{"error": "Duplicate request"}] * (SAME - 1) == refused
    assert [200] * count == [reply.status_code for reply in replies]
    stored = {row["request_id"]: row["reply"] for row in await replied(backburner)}
    assert count + 1 == len(stored)
    for n, reply in enumerate(replies):
        assert f"Mock answer to: message {n}" in reply.json()["content"]
        assert stored[f"talk-{n}"] == reply.json()
    jobs = await backburner.engine.jobs(JobFilter(queue="ai-jobs"), limit=500)
    assert {job.id for job in jobs} == {
        row["id"] for row in await rows(backburner, memories)
    }
    ends = [
        event
        for job in jobs
        async for event in backburner.engine.events(job)
        if event.type == SUCCEEDED
    ]
    assert len(jobs) == len(ends) == count + 1
    assert kills, "control: workers were killed"
    record_property("told", f"chat: {count} conversations, {kills} kills")


async def kill_workers(fleet, backburner, worker, left):
    """Kill a worker after every few replies, while there are any to come."""
    kills = 0
    async with asyncio.timeout(600):
        while (done := len(await replied(backburner))) < left:
            until = min(done + KILLED_AFTER, left)
            while len(await replied(backburner)) < until:
                await pause()
            if until < left:
                worker.kill()
                worker.wait()
                kills += 1
                worker = await fleet.start_worker()
    return kills
