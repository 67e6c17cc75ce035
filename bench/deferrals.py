"""
How soon Discord is answered: `serve chat` and a worker, while 200 other jobs run.

Each command is signed, stored with its flow and deferred. Discord shows an error after
three seconds. A server on loopback receives the replies; each command must get one.
"""

import asyncio
import json
import time
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from backburner import Backburner, Settings, Transaction
from backburner.demo import Sleep, sleep
from backburner_apps.chat import app, sample
from backburner_apps.chat.discord.replying import DRAFT_QUEUE, QUEUE
from backburner_apps.chat.work import QUEUE as MODEL_QUEUE
from bench.brokers import forget_queue
from bench.meter import NotTrueError, at_least, quantiles
from bench.sentences import cpu_of, free_ports, running_processes
from bench.wire import post

AT_ONCE = 20
"""The number of commands in progress."""
BUSY = 200
"""The number of other jobs that run at the same time."""
WARM = at_least(20)
FEWEST = at_least(20)
PATIENCE = 600.0
APPLICATION = "1"
DEFERRED = {"type": 5}
COUNTS = """
    SELECT (SELECT count(*) FROM chat_discord_interactions WHERE sent = 1),
           (SELECT count(*) FROM chat_discord_interactions),
           (SELECT count(*) FROM jobs WHERE capability = 'llm-generation'
                                        AND state = 'succeeded')
"""
RUNNING = """
    SELECT count(*) FROM jobs
     WHERE capability = 'demo.sleep' AND state = 'running'
"""

Figures = dict[str, Any]


async def deferred(url: str, transport: str, folder: Path, count: int) -> Figures:
    """Send commands while other jobs run; check that each has one reply."""
    await _forget(transport)
    port, _ = free_ports()
    key = Ed25519PrivateKey.generate()
    commands = {
        "server": ("serve", "chat", "--dev", "--no-worker", "--port", str(port)),
        "worker": ("worker", "--app", "chat"),
        "sleeper": ("worker", "--app", "backburner.demo:app"),
    }
    async with AsyncExitStack() as stack:
        sink = await stack.enter_async_context(_taking_replies())
        settings = Settings(store=url, transport=transport, ai=("mock",))
        bb = await stack.enter_async_context(
            Backburner(settings, apps=[app], capabilities=[sleep])
        )
        await sample.make(bb)
        env = {
            "BACKBURNER_STORE": url,
            "BACKBURNER_TRANSPORT": transport,
            "BACKBURNER_LOG_LEVEL": "error",
            "BACKBURNER_GRACE_SECONDS": "0",
            "BACKBURNER_SLOTS": str(BUSY + 100),
            "BACKBURNER_AI": "mock",
            "BACKBURNER_WEBHOOK_ALLOW": "127.0.0.1",
            "BACKBURNER_CHAT_USER_REQUESTS": "0",
            "DISCORD_PUBLIC_KEY": key.public_key().public_bytes_raw().hex(),
            "DISCORD_APPLICATION_ID": APPLICATION,
            "DISCORD_API_BASE_URL": sink,
        }
        found = await stack.enter_async_context(
            running_processes(folder, env, commands)
        )
        await bb.submit_many(sleep, [Sleep(seconds=PATIENCE)] * BUSY)
        await _until(bb, RUNNING, BUSY)
        await _send(port, key, range(1, WARM + 1))
        before = cpu_of(found["server"])
        waits = await _send(port, key, range(WARM + 1, WARM + count + 1))
        used = cpu_of(found["server"]) - before
        if await _count(bb, RUNNING) != [BUSY]:
            raise NotTrueError("not all of the other jobs ran all the time")
        await _until(bb, COUNTS.split(",", maxsplit=1)[0], WARM + count)
        await check_replies(bb, WARM + count)
    await _forget(transport)
    return {**quantiles(waits), "cpu_us": round(used / count * 1e6, 1)}


async def check_replies(bb: Backburner, count: int) -> None:
    """Check that every command is stored once, with one reply accepted by Discord."""
    counted = await _count(bb, COUNTS)
    if counted != [count] * len(counted):
        raise NotTrueError(f"{counted} were counted, of {count}")


async def _send(port: int, key: Ed25519PrivateKey, numbers: range) -> list[float]:
    """Keep some commands in progress; return how long each answer took."""
    left, waits = iter(numbers), list[float]()

    async def give(left: Iterator[int]) -> None:
        streams = await asyncio.open_connection("127.0.0.1", port)
        for n in left:
            body, stamp = json.dumps(_command(n)), str(int(time.time()))
            signature = key.sign((stamp + body).encode()).hex()
            headers = (
                f"X-Signature-Ed25519: {signature}\r\n"
                f"X-Signature-Timestamp: {stamp}\r\n"
            )
            begun = time.perf_counter()
            reply = await post(
                streams, "/discord/interactions", body, headers, status=200
            )
            waits.append(time.perf_counter() - begun)
            if json.loads(reply) != DEFERRED:
                raise NotTrueError(f"command {n} was not deferred")
        streams[1].close()

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(give(left))
    return waits


def _command(n: int) -> dict[str, Any]:
    options = {"personality": sample.ASSISTANT.id, "message": f"Message {n}"}
    return {
        "id": str(n),
        "application_id": APPLICATION,
        "type": 2,
        "token": f"token-{n}",
        "channel_id": str(n % AT_ONCE + 1),
        "user": {"id": str(n % AT_ONCE + 1)},
        "data": {
            "name": "chat",
            "options": [{"name": k, "value": v} for k, v in options.items()],
        },
    }


@asynccontextmanager
async def _taking_replies() -> AsyncIterator[str]:
    """Simulate Discord's API, accepting every call."""

    async def take(reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split()[0])
                await reader.readexactly(length)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def _until(bb: Backburner, query: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await _count(bb, query))[0] != count:
            await asyncio.sleep(0.05)


async def _count(bb: Backburner, query: str) -> list[int]:
    def look(tx: Transaction) -> list[int]:
        return [int(n) for n in tx.connection.execute(sa.text(query)).one()]

    return await bb.transact(look)


async def _forget(transport: str) -> None:
    for queue in (MODEL_QUEUE, QUEUE, DRAFT_QUEUE, sleep.queue):
        await asyncio.to_thread(forget_queue, transport, queue)
