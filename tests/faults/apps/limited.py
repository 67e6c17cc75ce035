"""Handlers that note when they begin and end, in a database apart."""

import asyncio
import os
from datetime import timedelta
from functools import cache

import asyncpg

from backburner import App, Context, Queue, Rate, capability

BEGIN = (
    "INSERT INTO runs (job, queue, worker, begun) "
    "VALUES ($1, $2, $3, clock_timestamp())"
)
BEGUN = "SELECT count(*) FROM runs WHERE queue = $1"
END = "UPDATE runs SET ended = clock_timestamp() WHERE job = $1"
TABLE = (
    "CREATE TABLE runs (job text, queue text, worker int, begun timestamptz, "
    "ended timestamptz)"
)


@cache
def pool() -> "asyncio.Future[asyncpg.Pool]":
    """Return this process's own connections, apart from the store's."""
    url = os.environ["BACKBURNER_TEST_NOTES"]  # noqa: TID251 - the test tells
    return asyncio.ensure_future(_connect(url))


async def _connect(url: str) -> asyncpg.Pool:
    return await asyncpg.create_pool(url, min_size=1, max_size=4)


async def run(ctx: Context, queue: str, seconds: float, together: int = 1) -> int:
    """Wait until several jobs of the queue have begun, then take a while."""
    connections = await pool()
    await connections.execute(BEGIN, ctx.job.id, queue, os.getpid())
    while await connections.fetchval(BEGUN, queue) < together:
        await connections.execute("SELECT pg_sleep(0.02)")
    await connections.execute("SELECT pg_sleep($1)", seconds)
    await connections.execute(END, ctx.job.id)
    return 1


@capability("five_at_once", queue="five")
async def five_at_once(ctx: Context, _value: int) -> int:
    return await run(ctx, "five", 0.03, together=5)


@capability("two_each", queue="two")
async def two_each(ctx: Context, _value: int) -> int:
    return await run(ctx, "two", 0.03)


@capability("twenty_a_second", queue="twenty")
async def twenty_a_second(ctx: Context, _value: int) -> int:
    return await run(ctx, "twenty", 0.0)


app = App(
    "limited",
    [five_at_once, two_each, twenty_a_second],
    queues=[
        Queue("five", concurrency=5),
        Queue("two", per_worker=2),
        Queue("twenty", rate=Rate(20, per=timedelta(seconds=1))),
    ],
)
