"""Many transactions that meet in the same rows: none waits for another in a circle."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import asyncpg
import httpx2
import pytest

from backburner.clock import SystemClock

DEADLOCKS = """
SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()
"""
CALLERS = 6
"""Callers of each API process."""
REFUSED = {409, 429, 503}
"""A group that is over, a queue that is full."""


NO_LOG = "not read: the server came by URL, without a log file"


@pytest.fixture
def store_url(migrated_url):
    return migrated_url


class ServerLog:
    """What the server that `tools/services` started wrote since then."""

    def __init__(self, path, database):
        self._path = path
        self._database = database
        self._seen = path.stat().st_size if path is not None else 0

    @classmethod
    async def of(cls, session):
        """Find the log of a session's server; there is none of one that came by URL."""
        cluster = Path(await session.fetchval("SHOW data_directory"))
        path = cluster.parent.with_name(f"{cluster.parent.name}.log")
        database = await session.fetchval("SELECT current_database()")
        names_it = "%d" in await session.fetchval("SHOW log_line_prefix")
        return cls(path if path.is_file() else None, database if names_it else "")

    def deadlocks(self):
        """Count those in the session's database, if lines name it; or say why not."""
        if self._path is None:
            return NO_LOG
        with self._path.open("rb") as file:
            file.seek(self._seen)
            lines = file.read().decode(errors="replace").splitlines()
        ours = [line for line in lines if self._database in line]
        return sum("deadlock detected" in line for line in ours)


class Crowd:
    """A caller that submits, retries and cancels, as the dice have it."""

    def __init__(self, address, seed):
        self._client = httpx2.AsyncClient(
            base_url=address, timeout=60.0, trust_env=False
        )
        self._dice = random.Random(seed)
        self.told = []

    async def close(self):
        await self._client.aclose()

    async def act(self):
        """Do one thing."""
        act = self._dice.choice([self._job, self._flow, self._batch])
        path = await act()
        if path is not None and self._dice.random() < 0.5:
            verb = self._dice.choice(["cancel", "cancel", "retry"])
            await self._post(f"{path}/{verb}")

    async def _job(self):
        return await self._made("jobs", self._one())

    async def _flow(self):
        return await self._made("flows", self._steps())

    async def _batch(self):
        jobs = [self._one() for _ in range(3)]
        return await self._made("batches", {"jobs": jobs, "flows": [self._steps()]})

    def _one(self):
        value, priority = self._dice.randint(1, 100), self._dice.randint(0, 2)
        return {"capability": "grow", "input": value, "priority": priority}

    def _steps(self):
        names = [f"s{n}" for n in range(self._dice.randint(1, 4))]
        steps = [{"name": name, **self._one()} for name in names]
        return {
            "steps": [*steps, {"name": "last", "capability": "last", "needs": names}]
        }

    async def _made(self, kind, body):
        answer = await self._post(f"/v1/{kind}", json=body)
        return f"/v1/{kind}/{answer.json()['id']}" if answer.is_success else None

    async def _post(self, path, **body):
        answer = await self._client.post(path, **body)
        self.told.append(answer.status_code)
        assert answer.is_success or answer.status_code in REFUSED, answer.text
        return answer


async def crowded(fleet, migrated_url, seed, seconds):
    """Return how many acts there were, and what the server counted and logged."""
    servers = [fleet.serve("crowded", "--no-worker") for _ in range(2)]
    workers = [fleet.worker("crowded", slots=20) for _ in range(2)]
    for process in (*servers, *workers):
        await process.ready()
    watcher = await asyncpg.connect(migrated_url)
    server_log = await ServerLog.of(watcher)
    before = await watcher.fetchval(DEADLOCKS)
    crowds = [
        Crowd(server.address, f"{seed}.{place}.{n}")
        for place, server in enumerate(servers)
        for n in range(CALLERS)
    ]
    clock = SystemClock()
    until = clock.monotonic() + seconds * 1000

    async def go_on(crowd):
        while clock.monotonic() < until:
            await crowd.act()

    try:
        await asyncio.gather(*map(go_on, crowds))
        await watcher.execute("SELECT pg_stat_clear_snapshot()")
        after = await watcher.fetchval(DEADLOCKS)
    finally:
        for crowd in crowds:
            with suppress(Exception):
                await crowd.close()
        await watcher.close()
    acts = sum(len(crowd.told) for crowd in crowds)
    return acts, after - before, server_log.deadlocks()


async def test_a_crowd_meets_no_deadlock_for_a_while(fleet, migrated_url):
    acts, deadlocks, logged = await crowded(fleet, migrated_url, seed=1, seconds=8)

    assert acts
    assert 0 == deadlocks
    assert logged in {0, NO_LOG}
    assert "DeadlockDetected" not in fleet.logs


@pytest.mark.experiment(37)
@pytest.mark.chaos
async def test_a_crowd_meets_no_deadlock(request, fleet, migrated_url, experiment):
    seconds = request.config.getoption("chaos_seconds")
    found = await crowded(fleet, migrated_url, experiment.seed, seconds)

    acts, deadlocks, logged = found
    held = not deadlocks and logged in {0, NO_LOG}
    experiment.found(
        "no deadlock", held, acts=acts, deadlocks=deadlocks, server_log=logged
    )


async def test_the_order_that_was_meets_one(migrated_url):
    """Two budgets, posted to by a settlement and an admission in their old orders."""
    sessions = [await asyncpg.connect(migrated_url) for _ in range(2)]
    server_log = await ServerLog.of(sessions[0])
    lock = "SELECT seq FROM accounts WHERE scope = $1 FOR UPDATE"
    await sessions[0].execute(
        "INSERT INTO accounts (scope, unit, per, tenant, value, window_at, ceiling)"
        " VALUES ('tenant', 'tokens', 1, 'a', 'a', 0, 1),"
        " ('user', 'tokens', 1, 'a', 'a', 0, 1)"
    )
    scopes = ("tenant", "user")
    both = asyncio.Barrier(2)

    async def take(session, order):
        async with session.transaction():
            for scope in order:
                await session.fetch(lock, scope)
                if scope == order[0]:
                    await both.wait()

    answers = await asyncio.gather(
        take(sessions[0], scopes),
        take(sessions[1], scopes[::-1]),
        return_exceptions=True,
    )
    for session in sessions:
        await session.close()

    assert [asyncpg.DeadlockDetectedError] == [
        type(answer) for answer in answers if answer is not None
    ]
    assert server_log.deadlocks() in {1, NO_LOG}
