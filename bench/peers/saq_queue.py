"""
SAQ on Redis or PostgreSQL, whichever the URL names; every job and result is kept.

    python -m bench.peers.saq_queue submit 5000|worker|stored|forget
"""

import asyncio
import logging
import os
import time
from importlib.metadata import version
from typing import Any

import uvloop
from saq import Queue, Worker

from bench.peers import task

NAME, URL = os.environ["BENCH_NAME"], os.environ["BENCH_URL"]
IS_POSTGRES = URL.startswith("postgres")
CHUNK = 500
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


async def noop(_ctx: Any, *, value: dict[str, object]) -> object:
    """Run the common task."""
    return task.run(value)


def queue() -> Any:
    """Return the queue; its pool has 20 connections, the size with the best result."""
    options = {"max_size": 20} if IS_POSTGRES else {}
    return Queue.from_url(URL, name=NAME, **options)


async def submit(count: int) -> dict[str, object]:
    """Enqueue 500 at once: there is no bulk call."""
    ours = queue()
    await ours.connect()
    begun = time.perf_counter()
    for first in range(0, count, CHUNK):
        chunk = range(first, min(first + CHUNK, count))
        await asyncio.gather(
            *(ours.enqueue("noop", value=task.payload(i)) for i in chunk)
        )
    spent = time.perf_counter() - begun
    await ours.disconnect()
    return {"submit_per_second": round(count / spent), "version": version("saq")}


async def worker() -> None:
    """Work with 100 jobs at once, until terminated."""
    logging.basicConfig(level=logging.ERROR)
    ours = queue()
    await ours.connect()
    await Worker(ours, functions=[noop], concurrency=100).start()


async def stored() -> int:
    """Count the jobs whose result is kept."""
    ours = queue()
    await ours.connect()
    if IS_POSTGRES:
        asked = "SELECT count(*) FROM saq_jobs WHERE status = 'complete'"
        async with ours.pool.connection() as connection:
            (found,) = await (await connection.execute(asked)).fetchone()
    else:
        keys = [key async for key in ours.redis.scan_iter(f"saq:job:{NAME}:*", 5_000)]
        found = len(keys) - await ours.count("incomplete")
    await ours.disconnect()
    return int(found)


async def forget() -> None:
    """Delete the data of this run from Redis; the benchmark drops a database itself."""
    if IS_POSTGRES:
        return
    ours = queue()
    for pattern in (f"saq:job:{NAME}:*", f"saq:{NAME}:*"):
        async for key in ours.redis.scan_iter(pattern, 5_000):
            await ours.redis.unlink(key)
    await ours.disconnect()


if __name__ == "__main__":
    task.main(__spec__.name)
