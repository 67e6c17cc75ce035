"""
The requests of the dashboard's views, timed over HTTP with a million jobs in the table.

    .venv/bin/python -m bench.dashboard sqlite:////tmp/dashboard.db
    BENCH_STORE=postgresql://… .venv/bin/python -m bench.dashboard --jobs 100000

Then a hundred pages stay open while jobs run: each holds a stream and reads the
overview again as the page does. Last, Chromium loads views, and reports when it painted
them. Prints one line of JSON for each request and view.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import httpx2
import psutil

from backburner import Backburner
from backburner.domain.auth.access import ROLES, Role
from backburner.engine.access.keys import Actor, NewKey
from backburner.settings import Settings
from bench.filling import LONG, USERS, fill, working
from bench.pages import LIVE, PAGES, View, fleet, job, jobs, overview, pages, written
from bench.paint import paints
from bench.sentences import free_ports

LIMIT_MS: Final = 200.0
PEPPER: Final = "pepper of the measured server: " + "x" * 32
READS: Final = 40
FEW: Final = 4
APP: Final = "backburner.demo:app"
RATES: Final = (2.0, 20.0)
"""How many jobs a second run while pages are open."""
AGO: Final = {
    "minutes": 300,
    "half": 1_800,
    "hour": 3_600,
    "hours": 7_200,
    "day": 86_400,
    "days": 30 * 86_400,
}
"""What times in requests stand for, in seconds before the newest job."""

FILTERS: Final = (
    "",
    *(
        f"state={state}"
        for state in (
            *("blocked", "queued", "scheduled", "waiting", "running", "succeeded"),
            *("failed", "cancelled", "failed,cancelled"),
        )
    ),
    "capability=bench.c3",
    "capability=bench.rare",
    "capability=bench.absent",
    "tag=t7",
    "tag=rare",
    "tag=absent",
    "metadata=kind=k8",
    "metadata=order=rare",
    "metadata=order=absent",
    "queue=q2",
    "queue=absent",
    "worker=w_bench",
    "worker=absent",
    "user={user}",
    "user={user}&state=blocked",
    "user={user}&state=cancelled",
    "user={user}&tag=rare",
    "user={user}&metadata=order=rare",
    "state=cancelled&metadata=order=rare",
    "state=failed&metadata=kind=k8",
    "state=cancelled&tag=rare",
    "state=cancelled&capability=bench.c3",
    "state=failed&capability=bench.c3",
    "since={hours}",
    "since={minutes}",
    "since={minutes}&state=succeeded",
    "until={hours}",
    "until={hours}&state=cancelled",
    "since={days}&until={hours}&state=failed",
    "fingerprint=f3&state=failed",
    "batch=batch_1",
    "batch=batch_1&state=failed",
    "flow=flow_1",
    "capability=webhook.deliver&state=failed",
    "capability=webhook.deliver&state=succeeded",
    "capability=webhook.deliver&state=queued,scheduled,running",
    "sort=oldest",
    "sort=oldest&tag=rare",
    "sort=oldest&metadata=order=rare",
    "sort=oldest&state=cancelled",
)
OTHERS: Final = (
    "/v1/me",
    "/v1/activity?since={half}",
    "/v1/usage?by=minute&limit=100&since={half}&everyone=true",
    "/v1/usage?by=minute&limit=100&since={half}",
    "/v1/usage?by=model&since={minutes}&everyone=true",
    *(
        f"/v1/usage/costs?since={{{period}}}{whose}"
        for period in ("hour", "day", "days")
        for whose in ("", "&everyone=true")
    ),
    "/v1/dead-letters?limit=100",
    "/v1/dead-letters?limit=100&impact=true",
    "/v1/dead-letters?fingerprint=f3&limit=50",
    "/v1/capabilities",
    "/v1/schedules",
    "/v1/lanes",
    *(
        f"/v1/{groups}?limit=50{where}"
        for groups in ("flows", "batches")
        for where in ("", "&state=failed", "&tag=absent")
        if groups == "flows" or "state" not in where
    ),
    "/v1/flows?batch=batch_1&state=failed&limit=50",
    "/v1/flows/flow_1",
    "/v1/flows/flow_1/graph",
    "/v1/flows/flow_1/steps?limit=50",
    "/v1/flows/flow_1/steps?limit=50&state=failed",
    "/v1/flows/flow_1/steps?limit=50&node=1&state=failed",
    "/v1/batches/batch_1",
    "/v1/questions?limit=50",
    "/v1/endpoints?limit=50",
    "/v1/keys",
    "/v1/audit?limit=50",
    "/v1/audit?limit=50&before=50000",
    "/v1/configuration",
    "/v1/jobs/job_50001?content=false",
    "/v1/jobs/job_50001/history?changes=true&limit=500",
    "/v1/jobs/job_50001/steps",
    *(f"/v1/jobs/job_{job}/waiting" for job in (50_994, 51_998, 51_999)),
    "/v1/jobs/job_17?content=false",
    "/v1/jobs/job_17/history?changes=true&limit=500",
    *(
        f"/v1/jobs/job_17/history?limit=200&after={after}"
        for after in (0, LONG // 2, LONG - 200)
    ),
)


async def _key(url: str, role: Role, user: str | None = None) -> str:
    async with Backburner(Settings(store=url, key_pepper=PEPPER)) as bb:
        wanted = NewKey(f"bench {role}", ROLES[role], user=user)
        _, text = await bb.keys.create(wanted, Actor("bench", "default"))
        return text


@contextlib.contextmanager
def _running(url: str, *command: str) -> Iterator[psutil.Process]:
    env = {
        **os.environ,
        "BACKBURNER_STORE": url,
        "BACKBURNER_LOG_LEVEL": "error",
        "BACKBURNER_KEY_RATE": "0",
        "BACKBURNER_KEY_PEPPER": PEPPER,
        "BACKBURNER_WEBHOOK_SECRET": PEPPER,
        "BACKBURNER_LINK_SECRET": PEPPER,
    }
    whole = (sys.executable, "-m", "backburner", *command, "--app", APP)
    process = subprocess.Popen(whole, env=env)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


@asynccontextmanager
async def _served(url: str) -> AsyncIterator[tuple[str, psutil.Process]]:
    port, _ = free_ports()
    address = f"http://127.0.0.1:{port}"
    with _running(url, "serve", "--no-worker", "--port", str(port)) as process:
        async with httpx2.AsyncClient() as client:
            while True:
                with contextlib.suppress(httpx2.HTTPError):
                    if (await client.get(f"{address}/readyz")).is_success:
                        break
                await asyncio.sleep(0.1)
        yield address, process


def _backends(url: str) -> list[psutil.Process]:
    """Return the processes of PostgreSQL that serve this database."""
    name = f" {url.rpartition('/')[2]} "
    return [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "postgres"
        and name in " ".join(process.info["cmdline"] or ())
    ]


async def _timed(client: httpx2.AsyncClient, path: str, reads: int) -> dict[str, Any]:
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


async def views(
    address: str, keys: dict[str, str], options: argparse.Namespace, now: float
) -> list[dict[str, Any]]:
    """Time every request of every view, for each of these keys."""
    rows: list[dict[str, Any]] = []
    meant = {name: written(now - seconds) for name, seconds in AGO.items()}
    meant["user"] = _user(options)
    paths = [
        *LIVE,
        *(f"/v1/jobs?limit=50&{where}" for where in FILTERS),
        *(f"/v1/jobs/count?{w}" for w in FILTERS if "sort" not in w),
        *OTHERS,
    ]
    for name, key in keys.items():
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(
            base_url=address, headers=headers, timeout=120
        ) as client:
            for path in (path for path in paths if options.part in path):
                timed = await _timed(client, path.format(**meant), options.reads)
                row = {"as": name, **timed, "path": path}
                if row.get("status") != HTTPStatus.FORBIDDEN:
                    rows.append(row)
                    print(json.dumps(row), flush=True)
    return rows


def _user(options: argparse.Namespace) -> str:
    """Return the name of the user whose views are timed."""
    return f"u{7 % options.users}"


async def _views(
    url: str, administrator: str, options: argparse.Namespace
) -> list[list[View]]:
    """Return which views are open: the same for one key, then four for many keys."""
    last: int = options.jobs
    operators = [await _key(url, Role.PLATFORM_ADMINISTRATOR) for _ in range(FEW)]
    names = [f"u{number % options.users}" for number in range(20)]
    users = [await _key(url, Role.USER, name) for name in names]
    # Jobs that wait, which belong to the user of their number: the others are in pairs.
    waiting = [
        number
        for number in range(last - last % 1000 - 2, 0, -1000)
        if number % options.users < len(users) and number % 10_000 not in {1998, 2998}
    ]
    seen = itertools.cycle(waiting)
    mixed = [
        *(overview(users[n % 20], is_operator=False) for n in range(25)),
        *(overview(operators[n % FEW], is_operator=True) for n in range(10)),
        *(jobs(users[n % 20]) for n in range(20)),
        *(jobs(operators[n % FEW]) for n in range(10)),
        *(
            job(users[n % options.users], f"job_{n}")
            for n in itertools.islice(seen, 25)
        ),
        *(fleet(operators[n % FEW]) for n in range(10)),
    ]
    return [[overview(administrator, is_operator=True)] * PAGES, mixed]


async def _open_pages(
    address: str, key: str, server: psutil.Process, options: argparse.Namespace
) -> None:
    url: str = options.store
    with _running(url, "worker", "--slots", "4") as worker:
        processes = {"server": lambda: [server], "worker": lambda: [worker]}
        if url.startswith("postgres"):
            processes["database"] = lambda: _backends(url)
        for opened in await _views(url, key, options):
            for rate in RATES:
                found = await pages(address, opened, processes, rate)
                print(json.dumps(found), flush=True)


async def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the store if it is empty, serve it and time the requests."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("store", nargs="?", default=os.environ.get("BENCH_STORE"))
    asked.add_argument("--jobs", type=int, default=1_000_000)
    asked.add_argument("--users", type=int, default=USERS, help="who own the jobs")
    asked.add_argument("--reads", type=int, default=READS)
    asked.add_argument("--part", default="", help="only requests that contain this")
    asked.add_argument("--only", choices=("views", "pages", "paints"))
    options = asked.parse_args(arguments)
    url, last = options.store, f"job_{options.jobs}"
    async with Backburner(Settings(store=url)) as bb:  # it makes the tables
        has_jobs = await bb.engine.store.find([last])
    with working(url):
        if not has_jobs:
            now = int(time.time() * 1000)
            await asyncio.to_thread(fill, url, options.jobs, now, options.users)
        rows = await _measured(url, last, options)
    slow = [row for row in rows if row.get("over")]
    print(json.dumps({"requests": len(rows), "over_200_ms": len(slow)}))


async def _measured(
    url: str, last: str, options: argparse.Namespace
) -> list[dict[str, Any]]:
    async with Backburner(Settings(store=url)) as bb:
        [newest] = await bb.engine.store.find([last])
    keys = {
        "administrator": await _key(url, Role.PLATFORM_ADMINISTRATOR),
        "user": await _key(url, Role.USER, _user(options)),
    }
    rows: list[dict[str, Any]] = []
    async with _served(url) as (address, process):
        if options.only in (None, "views"):
            at = newest.created_at / 1000
            rows = await views(address, keys, options, at)
        if options.only in (None, "pages"):
            key = keys["administrator"]
            await _open_pages(address, key, process, options)
        if options.only in (None, "paints"):
            async for found in paints(address, keys["administrator"]):
                print(json.dumps(found), flush=True)
    return rows


if __name__ == "__main__":
    asyncio.run(main())
