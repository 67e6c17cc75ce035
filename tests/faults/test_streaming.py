"""Readers and workers are killed while text is streamed."""

import asyncio
import random
from collections import deque
from contextlib import suppress

import httpx2
import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from backburner.domain.events.event import DELTA
from backburner.domain.events.text import Text
from backburner.domain.jobs.job import FINAL, JobState
from backburner.domain.jobs.transitions import Limits

pytestmark = pytest.mark.one_store

JOBS, KILLS = 16, 9
MANY = {"BACKBURNER_CRASH_LIMIT": "1000"}
CUT = (httpx2.HTTPError, WebSocketException, OSError, EOFError, TimeoutError)


class Reader:
    """Reads the text of a job over connections that are cut, in lives that end."""

    def __init__(self, job, servers, http, seed):
        self.job = job
        self._servers = servers
        self._http = http
        self._lots = random.Random(seed)
        self._is_over = asyncio.get_running_loop().create_future()
        self.cuts = -1
        self._begin()

    def _begin(self):
        """Know nothing, as after a restart."""
        self.text = Text()
        self.seen = 0
        self.last = ""
        self.careless = ""
        """What somebody reads who looks at the text alone."""

    async def read(self):
        """Read to the end; it is an end if the server says so."""
        while not self._is_over.done():
            self.cuts += 1
            if self._lots.random() < 0.1:
                self._begin()
            with suppress(*CUT):
                async with asyncio.timeout(self._lots.uniform(0.05, 1.0)):
                    await self._connect(self._lots.choice(self._servers).address)
            await asyncio.wait({self._is_over}, timeout=0.05)

    def _take(self, told):
        self.seen, self.last = told["n"], told["type"].removeprefix("job.")
        self.text.take(told["n"], told["type"], told["data"])
        self.careless += told["data"].get("text", "")

    def _end(self):
        assert self.last in FINAL, f"a reader was sent away after {self.last}"
        self._is_over.set_result(None)


class SseReader(Reader):
    async def _connect(self, address):
        url = f"{address}/v1/jobs/{self.job}/events"
        headers = {"Last-Event-ID": str(self.seen)}
        async with self._http.sse(url, headers=headers) as source:
            source.response.raise_for_status()
            async for event in source:
                if event.data:
                    self._take(orjson.loads(event.data))
        self._end()


class SocketReader(Reader):
    async def _connect(self, address):
        url = f"{address.replace('http', 'ws')}/v1/ws"
        async with connect(url, proxy=None, close_timeout=0.1) as socket:
            asked = {"type": "subscribe", "job_id": self.job, "after": self.seen}
            await socket.send(orjson.dumps(asked).decode())
            async for message in socket:
                told = orjson.loads(message)
                if told["type"] == "ended":
                    self._end()
                    return
                if "n" in told:
                    self._take(told)


async def test_every_reader_ends_with_the_result_whoever_is_killed(fleet, client):
    lots = random.Random(6)
    servers = deque([fleet.serve("writing", "--no-worker", **MANY) for _ in range(2)])
    workers = deque([fleet.worker("writing", slots=4, **MANY) for _ in range(2)])
    for process in (*servers, *workers):
        await process.ready()
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        jobs = [await submit(http, servers[0]) for _ in range(JOBS)]
        readers = [
            kind(job, servers, http, seed=f"{kind.__name__} {place}")
            for place, job in enumerate(jobs)
            for kind in (SseReader, SocketReader)
        ]
        reading = asyncio.gather(*(reader.read() for reader in readers))
        for kill in range(KILLS):
            await asyncio.wait({reading}, timeout=lots.uniform(0.1, 0.6))
            workers.append(fleet.worker("writing", slots=4, **MANY))
            (await workers.popleft().ready()).kill()
            if kill % 4 == 0:
                servers.append(
                    await fleet.serve("writing", "--no-worker", **MANY).ready()
                )
                servers.popleft().kill()
        async with asyncio.timeout(60):
            await reading
    client.ledger.acknowledged = client.ledger.streamed = jobs
    ended = {job.id: job for job in await client.ended(jobs)}
    results = {job: orjson.loads(ended[job].output) for job in jobs}
    torn = [job for job in jobs if len(await epochs(client, job)) > 1]

    assert {JobState.SUCCEEDED} == {job.state for job in ended.values()}
    assert [] == [r.job for r in readers if str(r.text) != results[r.job]]
    assert [] == await client.audit(Limits(crashes=1000))
    assert torn, "no attempt was killed while it wrote"
    assert sum(reader.cuts for reader in readers) > len(readers)
    # The control: who does not mind the epochs ends with something else.
    careless = {r.job for r in readers if r.careless != results[r.job]}
    assert set(torn) <= careless


async def submit(http, server):
    body = {"capability": "write", "input": {}}
    return (await http.post(f"{server.address}/v1/jobs", json=body)).json()["id"]


async def epochs(client, job):
    """Return which attempts of a job were heard."""
    history = await client.store.history(job, after=0, limit=10_000)
    return {event.data["epoch"] for event in history if event.type == DELTA}
