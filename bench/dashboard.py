"""
The requests of the dashboard's views, timed over HTTP with a million jobs in the table.

    .venv/bin/python -m bench.dashboard sqlite:////tmp/dashboard.db
    BENCH_STORE=postgresql://… .venv/bin/python -m bench.dashboard --jobs 100000

Then a hundred pages stay open while jobs are submitted: each holds a stream and reads
the overview again as the page does. Prints one line of JSON for each request.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import httpx2
import psutil

from backburner import Backburner
from backburner.domain.auth.access import ROLES, Role
from backburner.engine.access.keys import Actor, NewKey
from backburner.settings import Settings
from bench.sentences import free_ports
from bench.servers import ask

SLICE: Final = 50_000
SPACING_MS: Final = 400
"""How far jobs are apart: a million of them were submitted within five days."""
FAR: Final = 4_000_000_000_000
LIMIT_MS: Final = 200.0
PEPPER: Final = "pepper of the measured server: " + "x" * 32
PAGES: Final = 100
READS: Final = 40
FEW: Final = 4
OPEN_SECONDS: Final = 20.0

# Of a hundred thousand jobs 94 % succeeded, and each other state has its share.
STATES: Final = """CASE WHEN i % 1000 < 940 THEN 'succeeded'
  WHEN i % 1000 < 970 THEN 'failed' WHEN i % 1000 < 990 THEN 'cancelled'
  WHEN i % 1000 < 994 THEN 'scheduled' WHEN i % 1000 < 998 THEN 'queued'
  WHEN i % 1000 < 999 THEN 'waiting'
  WHEN i % 10000 < 1000 THEN 'running' ELSE 'succeeded' END"""
JOBS: Final = f"""
INSERT INTO jobs (seq, id, tenant, "user", capability, queue, state, worker, token,
  priority, rank, attempt, max_attempts, events, created_at, ready_at, run_at,
  started_at, finished_at, input, output, error_code, fingerprint, tags)
SELECT i, 'job_' || i, CASE WHEN i % 10 = 0 THEN 'other' ELSE 'default' END,
  'u' || (i % 97), CASE WHEN i % 50000 = 7 THEN 'bench.rare'
    ELSE 'bench.c' || (i % 20) END, 'q' || (i % 5), state,
  CASE WHEN state = 'running' THEN 'w_bench' END,
  CASE WHEN state = 'running' THEN 't' END,
  0, i, 1, 3, 3, made, made, CASE WHEN state = 'scheduled' THEN {FAR} END,
  made, CASE WHEN state IN ('succeeded', 'failed', 'cancelled') THEN made END,
  '{"x" * 200}', CASE WHEN state = 'succeeded' THEN '1' END,
  CASE WHEN state = 'failed' THEN 'E' || (i % 7) END,
  CASE WHEN state = 'failed' THEN 'f' || (i % 7) END,
  CASE WHEN i % 100000 = 11 THEN 'rare' ELSE 't' || (i % 50) END
FROM (SELECT i, {STATES} AS state, {{now}} - ({{count}} - i) * {SPACING_MS} AS made
        FROM ({{numbers}}) AS n) AS m
"""
EVENTS: Final = """
INSERT INTO events (job, n, type, at, tenant, "user")
SELECT seq, k.column1, 'job.' || coalesce(k.column2, state), created_at, tenant, "user"
  FROM jobs, (VALUES (1, 'queued'), (2, 'started'), (3, NULL)) AS k
 WHERE seq BETWEEN {first} AND {last} ORDER BY seq, k.column1
"""
WORKER: Final = f"""
INSERT INTO workers (id, host, pid, slots, queues, started_at, beat_at)
VALUES ('w_bench', 'here', 1, 1000, 'q0', 0, {FAR})
"""
SQLITE_NUMBERS: Final = """
WITH RECURSIVE n (i) AS (
  SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last}) SELECT i FROM n
"""
POSTGRES_NUMBERS: Final = "SELECT generate_series({first}, {last}) AS i"

OVERVIEW: Final = (
    "/v1/jobs/count?state=queued",
    "/v1/jobs/count?state=running",
    "/v1/jobs/count?state=scheduled",
    "/v1/jobs/count?state=failed",
    "/v1/jobs/count?state=succeeded&since={minutes}",
    "/v1/jobs?state=queued&sort=oldest&limit=1",
    "/v1/jobs?limit=1",
    "/v1/dead-letters?limit=5",
    "/v1/queues",
    "/v1/usage?by=model&since={minutes}&everyone=true",
)
FILTERS: Final = (
    "",
    *(
        f"state={state}"
        for state in (
            *("queued", "scheduled", "waiting", "running", "succeeded"),
            *("failed", "cancelled", "failed,cancelled"),
        )
    ),
    "capability=bench.c3",
    "capability=bench.rare",
    "capability=bench.absent",
    "tag=t7",
    "tag=rare",
    "tag=absent",
    "queue=q2",
    "queue=absent",
    "user=u7",
    "user=u7&state=cancelled",
    "user=u7&tag=rare",
    "state=cancelled&tag=rare",
    "state=cancelled&capability=bench.c3",
    "state=failed&capability=bench.c3",
    "since={hours}",
    "until={hours}&state=cancelled",
    "sort=oldest",
    "sort=oldest&tag=rare",
    "sort=oldest&state=cancelled",
)
OTHERS: Final = (
    "/v1/dead-letters?limit=100",
    "/v1/dead-letters?fingerprint=f3&limit=50",
    "/v1/workers",
    "/v1/schedules",
    "/v1/lanes",
    "/v1/flows?limit=50",
    "/v1/batches?limit=50",
    "/v1/questions?limit=50",
    "/v1/keys",
    "/v1/audit?limit=50",
    "/v1/jobs/job_50001?content=false",
    "/v1/jobs/job_50001/history?limit=200",
)


def fill(url: str, count: int, now: int) -> None:
    """Write jobs in all states, of many users, capabilities and tags."""
    is_postgres = url.startswith("postgres")
    numbers = POSTGRES_NUMBERS if is_postgres else SQLITE_NUMBERS
    _run(url, WORKER)
    for first in range(1, count + 1, SLICE):
        last = min(first + SLICE - 1, count)
        some = numbers.format(first=first, last=last)
        _run(url, JOBS.format(now=now, count=count, numbers=some))
        _run(url, EVENTS.format(first=first, last=last))
    if is_postgres:
        ask(url, "SELECT setval('jobs_seq_seq', max(seq)) FROM jobs")
        for table in ("jobs", "events"):
            ask(url, f"VACUUM ANALYZE {table}")


def _run(url: str, statement: str) -> None:
    if url.startswith("postgres"):
        ask(url, statement)
        return
    path = url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


async def _key(url: str, role: Role, user: str | None = None) -> str:
    async with Backburner(Settings(store=url, key_pepper=PEPPER)) as bb:
        wanted = NewKey(f"bench {role}", ROLES[role], user=user)
        _, text = await bb.keys.create(wanted, Actor("bench", "default"))
        return text


def _started(command: Sequence[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *command], env=env)


@asynccontextmanager
async def _served(url: str) -> AsyncIterator[tuple[str, psutil.Process]]:
    port, _ = free_ports()
    env = {
        **os.environ,
        "BACKBURNER_STORE": url,
        "BACKBURNER_LOG_LEVEL": "error",
        "BACKBURNER_KEY_RATE": "0",
        "BACKBURNER_KEY_PEPPER": PEPPER,
        "BACKBURNER_WEBHOOK_SECRET": PEPPER,
        "BACKBURNER_LINK_SECRET": PEPPER,
    }
    command = ("-m", "backburner", "serve", "--no-worker", "--port", str(port))
    process = _started(command, env)
    try:
        address = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient() as client:
            while True:
                with contextlib.suppress(httpx2.HTTPError):
                    if (await client.get(f"{address}/readyz")).is_success:
                        break
                await asyncio.sleep(0.1)
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


async def _timed(client: httpx2.AsyncClient, path: str, reads: int) -> dict[str, Any]:
    now = time.time()
    path = path.format(minutes=_time(now - 300), hours=_time(now - 7200))
    taken: list[float] = []
    for turn in range(reads):
        begun = time.perf_counter()
        answer = await client.get(path)
        took = (time.perf_counter() - begun) * 1000
        if answer.status_code != HTTPStatus.OK:
            return {"path": path, "status": answer.status_code}
        taken.append(took)
        if turn == FEW and statistics.median(taken) > 5 * LIMIT_MS:
            break  # it is far too slow: five reads tell
    taken.sort()
    p95 = taken[min(len(taken) - 1, int(0.95 * len(taken)))]
    p50 = statistics.median(taken)
    found = answer.json()
    count = len(found["items"]) if "items" in found else found.get("count")
    return {
        "path": path,
        "p50_ms": round(p50, 1),
        "p95_ms": round(p95, 1),
        "found": count,
        "over": p95 > LIMIT_MS,
    }


async def lists(address: str, keys: dict[str, str], reads: int) -> list[dict[str, Any]]:
    """Time every request of every view, for each of these keys."""
    rows: list[dict[str, Any]] = []
    paths = [
        *OVERVIEW,
        *(f"/v1/jobs?limit=50&{where}" for where in FILTERS),
        *(f"/v1/jobs/count?{w}" for w in FILTERS if "sort" not in w),
        *OTHERS,
    ]
    for name, key in keys.items():
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(
            base_url=address, headers=headers, timeout=120
        ) as client:
            for path in paths:
                row = {"as": name, **await _timed(client, path, reads)}
                if row.get("status") != HTTPStatus.FORBIDDEN:
                    rows.append(row)
                    print(json.dumps(row), flush=True)
    return rows


class OpenPage:
    """A tab with the overview: one stream, and reads at most every two seconds."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.reads = 0
        self._client = client
        self._changed = asyncio.Event()

    async def stay(self) -> None:
        """Follow the stream and read again, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._read())

    async def _follow(self) -> None:
        async with self._client.stream("GET", "/v1/events") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    self._changed.set()

    async def _read(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            since = _time(time.time() // 60 * 60 - 300)
            for path in OVERVIEW:
                await self._client.get(path.format(minutes=since))
                self.reads += 1
            await asyncio.sleep(2)


async def pages(address: str, key: str, process: psutil.Process) -> dict[str, Any]:
    """Hold a hundred pages open while jobs are submitted; return the server's CPU."""
    headers = {"Authorization": f"Bearer {key}"}
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(
        base_url=address, headers=headers, timeout=60, limits=limits
    ) as client:
        tabs = [OpenPage(client) for _ in range(PAGES)]
        opened = [asyncio.create_task(tab.stay()) for tab in tabs]
        await asyncio.sleep(3)
        before, begun = sum(process.cpu_times()[:2]), time.perf_counter()
        while time.perf_counter() - begun < OPEN_SECONDS:
            later = {"capability": "demo.echo", "input": {}, "run_at": _time(FAR / 1e3)}
            await client.post("/v1/jobs", json=later)
            await asyncio.sleep(0.5)
        wall = time.perf_counter() - begun
        used = sum(process.cpu_times()[:2]) - before
        for task in opened:
            task.cancel()
        await asyncio.gather(*opened, return_exceptions=True)
    return {
        "open_pages": PAGES,
        "cores": round(used / wall, 2),
        "requests_per_second": round(sum(tab.reads for tab in tabs) / wall, 1),
    }


async def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the store if it is empty, serve it and time the requests."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("store", nargs="?", default=os.environ.get("BENCH_STORE"))
    asked.add_argument("--jobs", type=int, default=1_000_000)
    asked.add_argument("--reads", type=int, default=READS)
    options = asked.parse_args(arguments)
    url = options.store
    async with Backburner(Settings(store=url)) as bb:  # it makes the tables
        store = bb.engine.store
        is_filled = bool(await store.find(["job_1"]))
    if not is_filled:
        await asyncio.to_thread(fill, url, options.jobs, int(time.time() * 1000))
    keys = {
        "administrator": await _key(url, Role.PLATFORM_ADMINISTRATOR),
        "user": await _key(url, Role.USER, "u7"),
    }
    async with _served(url) as (address, process):
        rows = await lists(address, keys, options.reads)
        print(json.dumps(await pages(address, keys["administrator"], process)))
    slow = [row for row in rows if row.get("over")]
    print(json.dumps({"requests": len(rows), "over_200_ms": len(slow)}))


if __name__ == "__main__":
    asyncio.run(main())
