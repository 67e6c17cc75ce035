"""
A session that drew event numbers and has not committed, while others have.

Readers of everything are connected over HTTP meanwhile, and come back in the middle.
"""

import asyncio
from contextlib import aclosing, asynccontextmanager

import httpx2
import orjson
import pytest
from websockets.asyncio.client import connect

from backburner.engine.submit.submission import LOCAL
from backburner.ports.faults import NoFaults
from backburner.stores.postgres.database import Database
from backburner.stores.postgres.queries import Queries
from backburner.stores.postgres.statements import Transaction
from backburner.stores.shared.ledger import Rulebook
from backburner.testing.samples import a_new_job

PATIENCE = 180.0


class Reader:
    """Notes the jobs whose events it is told of, and the last event's number."""

    def __init__(self, url):
        self._url = url
        self._told = asyncio.Condition()
        self.last = 0
        self.jobs = []

    async def read(self, job):
        """Connect after the last event seen, and stay until a job is told of."""
        async with aclosing(self.events()) as events:
            async for event in events:
                self.last = event["seq"]
                self.jobs.append(event["job_id"])
                async with self._told:
                    self._told.notify_all()
                if event["job_id"] == job:
                    return

    async def has_read(self, job):
        async with self._told:
            await self._told.wait_for(lambda: job in self.jobs)


class SseReader(Reader):
    async def events(self):
        since = {"Last-Event-ID": str(self.last)}
        async with (
            httpx2.AsyncClient(base_url=self._url, trust_env=False) as client,
            client.sse("/v1/events", headers=since, timeout=PATIENCE) as source,
        ):
            async for event in source:
                if event.data:
                    assert event.id == str(orjson.loads(event.data)["seq"])
                    yield orjson.loads(event.data)


class SocketReader(Reader):
    async def events(self):
        subscribe = {"type": "subscribe", "after": self.last}
        address = self._url.replace("http", "ws") + "/v1/ws"
        async with connect(address, proxy=None) as socket:
            await socket.send(orjson.dumps(subscribe).decode())
            async for message in socket:
                told = orjson.loads(message)
                if told["type"] != "subscribed":
                    yield told


@pytest.fixture
def store_url(migrated_url):
    return migrated_url


@pytest.fixture
async def hold(store_url):
    """Submit in a transaction that stays open as long as the block."""
    database, queries = Database(store_url), Queries.load()
    book = Rulebook(lambda: 0.0)

    @asynccontextmanager
    async def hold(count):
        jobs = [a_new_job(owner=LOCAL) for _ in range(count)]
        async with database.transaction() as connection:
            await connection.run_sync(
                lambda c: Transaction(c, queries, NoFaults(), book).submit(jobs)
            )
            yield [job.id for job in jobs]

    yield hold
    await database.dispose()


async def read_around(client, reader, hold):
    """Return all jobs in the order of their events, and the ones held back."""
    before = await client.submit("work", {}, {}, {})
    await reader.read(before[0])
    async with hold(2) as held:
        after = await client.submit("work", {}, {}, {}, {}, {})
        end = a_new_job(owner=LOCAL)
        reading = asyncio.create_task(reader.read(end.id))
        await reader.has_read(before[-1])
    await client.store.submit([end])
    await reading
    return [*before, *held, *after, end.id], held


@pytest.mark.parametrize("kind", [SseReader, SocketReader], ids=["sse", "ws"])
async def test_a_reader_over_http_skips_nothing_that_commits_late(
    fleet, client, hold, kind
):
    server = await fleet.serve("breakable", "--no-worker").ready()
    reader = kind(server.address)
    async with asyncio.timeout(PATIENCE):
        expected, _ = await read_around(client, reader, hold)

    assert expected == reader.jobs


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [SseReader, SocketReader], ids=["sse", "ws"])
async def test_without_the_horizon_it_skips_what_commits_late(
    fleet, client, hold, kind
):
    server = await fleet.serve("without_horizon", "--no-worker").ready()
    reader = kind(server.address)
    async with asyncio.timeout(PATIENCE):
        expected, held = await read_around(client, reader, hold)

    assert [job for job in expected if job not in held] == reader.jobs
