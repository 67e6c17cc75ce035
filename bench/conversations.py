"""
Messages that `chat` answers: a client, `serve chat`, `worker` and the mock.

The mock answers immediately, so the time is Backburner's own: HTTP, the check for
duplicates, the flow, the vector and the memory. Each user sends one message at a time.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from backburner import Backburner, Settings, Transaction
from backburner_apps.chat import app, sample
from backburner_apps.chat.work import QUEUE
from bench.brokers import forget_queue
from bench.meter import NotTrueError, at_least, quantiles
from bench.sentences import cpu_of, free_ports, running_processes
from bench.wire import post

AT_ONCE = 20
"""The number of users, each of whom has one message in progress."""
WARM = at_least(50)
"""Messages that open the connections and are not counted."""
FEWEST = at_least(20)
PATIENCE = 600.0
COUNTS = """
    SELECT (SELECT count(*) FROM chat_requests WHERE reply IS NOT NULL),
           (SELECT count(*) FROM chat_requests),
           (SELECT count(*) FROM chat_memories),
           (SELECT count(*) FROM jobs WHERE queue = 'ai-jobs' AND state = 'succeeded'),
           (SELECT count(*) FROM jobs WHERE queue = 'ai-jobs')
"""

Figures = dict[str, Any]


async def answered(url: str, transport: str, folder: Path, count: int) -> Figures:
    """Send messages concurrently; check that each has one reply and one memory."""
    await asyncio.to_thread(forget_queue, transport, QUEUE)
    port, _ = free_ports()
    env = {
        "BACKBURNER_STORE": url,
        "BACKBURNER_TRANSPORT": transport,
        "BACKBURNER_LOG_LEVEL": "error",
        "BACKBURNER_AI": "mock",
        "BACKBURNER_CHAT_USER_REQUESTS": "0",
    }
    commands = {
        "server": ("serve", "chat", "--dev", "--no-worker", "--port", str(port)),
        "worker": ("worker", "--app", "chat"),
    }
    at_once = min(AT_ONCE, count)
    async with AsyncExitStack() as stack:
        settings = Settings(store=url, ai=("mock",))
        bb = await stack.enter_async_context(Backburner(settings, apps=[app]))
        await sample.make(bb)
        processes = await stack.enter_async_context(
            running_processes(folder, env, commands)
        )
        await _send(port, range(WARM), at_once)
        before = sum(map(cpu_of, processes.values()))
        begun = time.perf_counter()
        waits = await _send(port, range(WARM, WARM + count), at_once)
        wall = time.perf_counter() - begun
        used = sum(map(cpu_of, processes.values())) - before
        await check_replies(bb, WARM + count)
    await asyncio.to_thread(forget_queue, transport, QUEUE)
    return {
        "per_second": round(count / wall, 1),
        **quantiles(waits),
        "cpu_us": round(used / count * 1e6, 1),
    }


async def _send(port: int, messages: range, at_once: int) -> list[float]:
    """Keep messages of all users in progress; return how long each reply took."""
    numbers, waits = iter(messages), list[float]()

    async def talk(user: int, numbers: Iterator[int]) -> None:
        streams = await asyncio.open_connection("127.0.0.1", port)
        for n in numbers:
            body = {
                "personalityId": sample.ASSISTANT.id,
                "channelId": "bench",
                "userId": f"u-{user}",
                "userMessage": f"Message {n}: when does train {n} leave for Lisbon?",
            }
            begun = time.perf_counter()
            reply = await post(streams, "/ai/generate", json.dumps(body), status=200)
            waits.append(time.perf_counter() - begun)
            if f"train {n} leave" not in json.loads(reply)["content"]:
                raise NotTrueError(f"message {n} has another's reply")
        streams[1].close()

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for user in range(at_once):
            group.create_task(talk(user, numbers))
    return waits


async def check_replies(bb: Backburner, count: int) -> None:
    """Check that every message has one reply and one memory, and no job is left."""

    def look(tx: Transaction) -> list[int]:
        return [int(n) for n in tx.connection.execute(sa.text(COUNTS)).one()]

    counted = await bb.transact(look)
    if counted != [count] * len(counted):
        raise NotTrueError(f"{counted} were counted, of {count}")
