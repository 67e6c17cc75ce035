"""
Taskiq on RabbitMQ with results in Redis: one process, 100 tasks at once.

    python -m bench.peers.taskiq_queue submit 5000|worker|stored|forget
"""

import asyncio
import os
import runpy
import sys
import time
from importlib.metadata import version
from typing import Any

import aio_pika
from redis.asyncio import Redis
from taskiq_aio_pika import AioPikaBroker
from taskiq_aio_pika.queue import Queue, QueueType
from taskiq_redis import RedisAsyncResultBackend

from bench.peers import task

NAME, URL = os.environ["BENCH_NAME"], os.environ["BENCH_URL"]
RESULTS = os.environ["BENCH_RESULTS"]
CHUNK = 100
broker = AioPikaBroker(
    URL, qos=100, task_queues=[Queue(name=NAME, type=QueueType.QUORUM)]
).with_result_backend(RedisAsyncResultBackend(redis_url=RESULTS, prefix_str=NAME))


@broker.task(task_name="noop")
async def noop(value: dict[str, Any]) -> object:
    """Run the common task."""
    return task.run(value)


async def submit(count: int) -> dict[str, object]:
    """Enqueue 100 at once: there is no bulk call."""
    await broker.startup()
    begun = time.perf_counter()
    for first in range(0, count, CHUNK):
        chunk = range(first, min(first + CHUNK, count))
        await asyncio.gather(*(noop.kiq(task.payload(i)) for i in chunk))
    spent = time.perf_counter() - begun
    await broker.shutdown()
    return {"submit_per_second": round(count / spent), "version": version("taskiq")}


def worker() -> None:
    """Run Taskiq's own worker."""
    sys.argv = ["taskiq", "worker", "bench.peers.taskiq_queue:broker"]
    sys.argv += ["--workers", "1", "--log-level", "ERROR"]
    sys.argv += ["--max-async-tasks", "100", "--max-prefetch", "100"]
    runpy.run_module("taskiq", run_name="__main__")


async def _keys(redis: Any) -> list[bytes]:
    return [key async for key in redis.scan_iter(f"{NAME}:*", 5_000)]


async def stored() -> int:
    """Count the results that are kept."""
    async with Redis.from_url(RESULTS) as redis:
        return len(await _keys(redis))


async def forget() -> None:
    """Delete the data of this run from the servers."""
    async with await aio_pika.connect(URL) as connection:
        channel = await connection.channel()
        await channel.queue_delete(NAME)
    async with Redis.from_url(RESULTS) as redis:
        for key in await _keys(redis):
            await redis.unlink(key)


if __name__ == "__main__":
    task.main(__spec__.name)
