"""
Processes files with `documents`: a client, `serve documents` and a worker.

Small text files are uploaded and confirmed, many at once, as one batch. With limits
lifted the rates of the queues are off; otherwise they are those of the contract.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import psutil
import sqlalchemy as sa

from backburner import Backburner, Settings, View
from backburner_apps.documents import app
from backburner_apps.documents.limits import (
    CHUNK_QUEUE,
    COMPLETION_QUEUE,
    EMBED_QUEUE,
    EXTRACT_QUEUE,
)
from backburner_apps.documents.tables import files
from bench.brokers import forget_queue
from bench.meter import NotTrueError
from bench.sentences import cpu_of, free_ports, running_processes

AT_ONCE = 8
FEWEST = 20
MOST = 1_000
UPLOADS = "/api/v2/uploads/batches"
QUEUES = (EXTRACT_QUEUE, CHUNK_QUEUE, EMBED_QUEUE, COMPLETION_QUEUE)
LIFTED = dict.fromkeys(
    (
        "BACKBURNER_DOCUMENTS_EXTRACT_PER_MINUTE",
        "BACKBURNER_DOCUMENTS_CHUNK_PER_MINUTE",
        "BACKBURNER_DOCUMENTS_EMBED_PER_MINUTE",
    ),
    "0",
)
MEGABYTE = 1_000_000
Figures = dict[str, Any]


async def processed(
    url: str, transport: str, folder: Path, count: int, *, is_lifted: bool
) -> Figures:
    """Upload a batch of files; check that all of them become ready."""
    await _forget(transport)
    port, _ = free_ports()
    env = {
        "BACKBURNER_STORE": url,
        "BACKBURNER_TRANSPORT": transport,
        "BACKBURNER_BLOBS": (folder / "blobs").as_uri(),
        "BACKBURNER_LINK_SECRET": "x" * 32,
        "BACKBURNER_LOG_LEVEL": "error",
        **(LIFTED if is_lifted else {}),
    }
    commands = {
        "server": ("serve", "documents", "--dev", "--no-worker", "--port", str(port)),
        "worker": ("worker", "--dev", "--app", "documents"),
    }
    async with AsyncExitStack() as stack:
        bb = await stack.enter_async_context(
            Backburner(Settings(store=url, ai=("mock",)), apps=[app])
        )
        running = await stack.enter_async_context(
            running_processes(folder, env, commands)
        )
        before = sum(map(cpu_of, running.values()))
        memory = dict.fromkeys(running, 0)
        watching = asyncio.create_task(_watch(running, memory))
        begun = time.perf_counter()
        batch_id = await _upload(port, count)
        await _completed(port, batch_id)
        wall = time.perf_counter() - begun
        watching.cancel()
        used = sum(map(cpu_of, running.values())) - before
        waits = sorted(await bb.read(_waits, count))
    await _forget(transport)
    return {
        "per_second": round(count / wall, 1),
        "p50_ms": waits[count // 2],
        "p95_ms": waits[int(count * 0.95)],
        "cpu_us": round(used / count * 1e6, 1),
        **{f"{name}_mb": round(most / MEGABYTE, 1) for name, most in memory.items()},
    }


async def _upload(port: int, count: int) -> str:
    """Open a batch, upload its files, a few at once, and confirm them."""
    base = f"http://127.0.0.1:{port}"
    gate = asyncio.Semaphore(AT_ONCE)
    async with httpx2.AsyncClient(base_url=base, timeout=60, trust_env=False) as http:
        answer = await http.post(UPLOADS, json={"fileCount": count})
        batch_id = str(answer.json()["batchId"])

        async def one(n: int) -> None:
            async with gate:
                await _send(http, batch_id, n)

        await asyncio.gather(*map(one, range(count)))
    return batch_id


async def _send(http: httpx2.AsyncClient, batch_id: str, n: int) -> None:
    content = f"File {n} says: {'the river is long. ' * 50}".encode()
    said = {"fileName": f"{n}.txt", "fileSize": len(content)}
    asked = await http.post(f"{UPLOADS}/{batch_id}/upload-urls", json=said)
    file = asked.json()
    (await http.put(file["uploadUrl"], content=content)).raise_for_status()
    path = f"{UPLOADS}/{batch_id}/files/{file['fileId']}/confirm"
    (await http.post(path, json={"size": len(content)})).raise_for_status()


async def _completed(port: int, batch_id: str) -> None:
    """Wait for the end of a batch."""
    base = f"http://127.0.0.1:{port}"
    async with httpx2.AsyncClient(base_url=base, timeout=60, trust_env=False) as http:
        while True:
            batch = (await http.get(f"{UPLOADS}/{batch_id}")).json()
            if batch["status"] == "completed":
                return
            await asyncio.sleep(0.2)


async def _watch(running: dict[str, psutil.Process], most: dict[str, int]) -> None:
    """Record the peak memory of each process."""
    while True:
        for name, process in running.items():
            most[name] = max(most[name], int(process.memory_info().rss))
        await asyncio.sleep(0.2)


def _waits(view: View, count: int) -> Sequence[int]:
    """Return the time from confirmation to `ready` of each file, in milliseconds."""
    f = files.c
    rows = sa.select(f.updated_at - f.confirmed_at).where(f.status == "ready")
    found = [int(wait) for wait in view.connection.execute(rows).scalars()]
    if len(found) != count:
        raise NotTrueError(f"{len(found)} files are ready, of {count}")
    return found


async def _forget(transport: str) -> None:
    for queue in QUEUES:
        await asyncio.to_thread(forget_queue, transport, queue)
