"""The cost of budget, webhook and events: jobs with all of them and plain jobs."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import SecretStr

from backburner import Backburner, Budget, Settings, Transaction
from backburner.domain.webhooks.delivery import QUEUE
from bench import work
from bench.meter import Meter, NotTrueError

BULK = 500
FIRST = 500
"""Jobs to run before measuring: statements are prepared and prices read once."""
PRICES = '{"version": "bench", "models": {"bench": {"input": 1, "output": 4}}}'
COUNTS = """
    SELECT (SELECT count(*) FROM jobs WHERE state = 'succeeded'),
           (SELECT count(*) FROM usages WHERE cost IS NOT NULL),
           (SELECT sum(held) FROM accounts), (SELECT sum(settled) FROM accounts)
"""


async def compare(url: str, jobs: int) -> dict[str, Any]:
    """
    Run plain jobs, then as many with budget, webhook and events, then the deliveries.

    A delivery is a separate job, created when the job that it reports ends. Here
    another worker sends the deliveries afterwards, so that each part has its own
    figure.
    """
    async with receiver() as port:
        async with _backburner(url, port, work.QUEUE) as bb:
            await bb.start_worker()
            await _run(bb, FIRST, work.noop)
            plain = await _run(bb, jobs, work.noop)
            budget = Budget("user", tokens=10**12, per=timedelta(days=1))
            await bb.engine.budgets.put(budget)
            callback = f"http://127.0.0.1:{port}/"
            await _run(bb, FIRST, work.spend, callback=callback)
            reading = asyncio.create_task(_read(bb, jobs))
            loaded = await _run(bb, jobs, work.spend, callback=callback)
            await asyncio.wait_for(reading, 60)
        async with _backburner(url, port, QUEUE) as bb:
            with Meter() as sending:
                await bb.start_worker()
                await _until_over(bb, QUEUE)
            await bb.transact(lambda tx: _check(tx, FIRST + jobs))
    return {
        "cpu_us": loaded["cpu_us"],
        "plain_cpu_us": plain["cpu_us"],
        "delivery_cpu_us": sending.figures(FIRST + jobs)["cpu_us"],
        "per_second": loaded["per_second"],
        "multiple": round(loaded["cpu_us"] / plain["cpu_us"], 2),
        "wall_multiple": round(plain["per_second"] / loaded["per_second"], 2),
    }


def _backburner(url: str, port: int, queue: str) -> Backburner:
    settings = Settings(
        store=url,
        prices=PRICES,
        queues=(queue,),
        webhook_secret=SecretStr("what the receiver never asks for, at all"),
        webhook_http=True,
        webhook_allow=("127.0.0.1",),
        webhook_ports=(port,),
    )
    return Backburner(settings, apps=[work.app])


async def _run(
    bb: Backburner, jobs: int, capability: Any, **options: Any
) -> dict[str, float]:
    with Meter() as meter:
        for first in range(0, jobs, BULK):
            values = work.payloads(min(BULK, jobs - first), first)
            await bb.submit_many(capability, values, **options)
        await _until_over(bb, work.QUEUE)
    return meter.figures(jobs)


async def _until_over(bb: Backburner, queue: str) -> None:
    while any(name == queue for name, *_ in await bb.engine.store.depths()):
        await asyncio.sleep(0.005)


async def _read(bb: Backburner, jobs: int) -> None:
    """Follow every event, as a dashboard does, until the last job has ended."""
    ends, after = 0, await bb.engine.store.latest()
    async for event in bb.engine.stream(after=after):
        ends += event.type == "job.succeeded"
        if ends == jobs:
            return


def _check(tx: Transaction, jobs: int) -> None:
    found = tuple(map(int, tx.connection.execute(sa.text(COUNTS)).one()))
    if found != (3 * jobs, jobs, 0, jobs * work.TOKENS):
        raise NotTrueError(f"found {found}")


@asynccontextmanager
async def receiver() -> AsyncIterator[int]:
    """Start a separate server that receives webhooks; yield its port."""
    server = subprocess.Popen(  # noqa: ASYNC220 - before anything is measured
        [sys.executable, "-m", "bench.loaded"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    try:
        port = await asyncio.to_thread(server.stdout.readline)  # type: ignore[union-attr]
        yield int(port)
    finally:
        server.terminate()
        await asyncio.to_thread(server.wait)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
            await reader.readexactly(int(length))
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _receive() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_receive())
