"""
Limits hold over the whole fleet: four workers and two servers, on both databases.

What ran when is written down in a PostgreSQL of the test's own, by its clock.
"""

import asyncio
from contextlib import AsyncExitStack

import asyncpg
import httpx2
import pytest
from limited import TABLE

pytestmark = pytest.mark.one_store

PATIENCE = 180.0
MOST_AT_ONCE = """
SELECT max(running) FROM (
  SELECT sum(step) OVER (PARTITION BY {part} ORDER BY at, step) AS running FROM (
    SELECT worker, begun AS at, 1 AS step FROM runs
    UNION ALL SELECT worker, ended, -1 FROM runs
  ) AS steps
) AS runs
"""
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
IN_ORDER = (
    "SELECT (extract(epoch FROM begun) * 1000)::bigint FROM runs "
    "WHERE queue = 'twenty' ORDER BY begun"
)


@pytest.fixture
async def database(postgres_url):
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(TABLE)
    yield connection
    await connection.close()


@pytest.fixture
async def start(fleet, postgres_url, database):  # noqa: ARG001 - it is there
    """Start two servers and four workers of an app; return clients of the servers."""
    async with AsyncExitStack() as stack:

        async def start(module="limited", slots=8):
            noted = {"BACKBURNER_TEST_NOTES": postgres_url}
            servers = [fleet.serve(module, "--no-worker", **noted) for _ in range(2)]
            workers = [fleet.worker(module, slots=slots, **noted) for _ in range(4)]
            await asyncio.gather(*(process.ready() for process in servers + workers))
            return [
                await stack.enter_async_context(
                    httpx2.AsyncClient(base_url=server.address, trust_env=False)
                )
                for server in servers
            ]

        yield start


@pytest.fixture
async def servers(start):
    return await start()


async def submit(clients, capability, count):
    asked = {"capability": capability, "input": 1}
    answers = await asyncio.gather(
        *(clients[n % 2].post("/v1/jobs", json=asked) for n in range(count))
    )
    return [answer.json()["links"]["self"] for answer in answers]


async def all_end(clients, links):
    patient = {"Prefer": "wait=50"}

    async def end(link):
        """Ask until there is an answer: so many at once may be told to come again."""
        while True:
            answer = await clients[0].get(link, headers=patient, timeout=PATIENCE)
            if answer.status_code != 503:
                return answer.json()["state"]

    return set(await asyncio.gather(*map(end, links)))


async def test_no_more_run_at_once_in_the_whole_fleet_than_the_queue_allows(
    start, database
):
    servers = await start(slots=2)  # five at once need three of the workers
    states = await all_end(servers, await submit(servers, "five_at_once", 60))

    most = await database.fetchval(MOST_AT_ONCE.format(part="1"))
    workers = await database.fetchval("SELECT count(DISTINCT worker) FROM runs")
    assert {"succeeded"} == states
    assert 5 == most
    assert workers > 2


async def test_no_more_run_at_once_on_a_worker_than_the_queue_allows(servers, database):
    states = await all_end(servers, await submit(servers, "two_each", 60))

    each = await database.fetchval(MOST_AT_ONCE.format(part="worker"))
    together = await database.fetchval(MOST_AT_ONCE.format(part="1"))
    assert {"succeeded"} == states
    assert 2 == each
    assert 2 < together <= 8


@pytest.mark.thorough
async def test_without_the_policy_more_of_them_run_at_once(start, database):
    servers = await start("unlimited")
    await all_end(servers, await submit(servers, "five_at_once", 60))

    assert 5 < await database.fetchval(MOST_AT_ONCE.format(part="1"))


async def test_no_more_start_in_a_window_than_the_rate_allows(servers, database):
    window = await database.fetchval(NOW) // 1000
    states = await all_end(servers, await submit(servers, "twenty_a_second", 90))
    begun = [row[0] for row in await database.fetch(IN_ORDER)]

    # Twenty at most belong to each window: the next one waits for the next to begin.
    opens = [(window + n) * 1000 for n in range(5)]
    early = [at for at, opened in zip(begun[::20], opens, strict=True) if at < opened]
    assert {"succeeded"} == states
    assert 90 == len(begun)
    assert [] == early
    assert 12_000 > begun[-1] - begun[0]


async def test_a_paused_queue_stands_still_in_the_whole_fleet(servers, database):
    one, other = servers
    await one.post("/v1/queues/five/pause")
    links = await submit(servers, "five_at_once", 20)
    await all_end(servers, await submit(servers, "two_each", 20))
    paused = await database.fetchval("SELECT count(*) FROM runs WHERE queue = 'five'")

    await other.post("/v1/queues/five/resume")

    assert 0 == paused
    assert {"succeeded"} == await all_end(servers, links)
