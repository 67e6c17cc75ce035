"""
The rows of the table. Each runs in a fresh process and prints one JSON object.

    BENCH_STORE=postgresql://… python -m bench.rows drain /some/folder
    BENCH_TRANSPORT=redis://… BENCH_QUEUE=bench-1 …     uses a broker
"""

import asyncio
import contextlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import sqlalchemy as sa
import uvloop

from backburner import Backburner, BatchTicket, Settings
from backburner.adapters import find_broker
from backburner.cli.running import spare_collector
from backburner.domain.groups.batch import BatchState
from backburner.domain.jobs.job import JobState
from backburner.engine.flow import written
from backburner.engine.observability import telemetry
from backburner.ports.store.maintenance import JobFilter
from bench import blobs as streaming
from bench import buckets, history, work
from bench import owners as among_owners
from bench.loaded import compare
from bench.meter import Expected, Meter, NotTrueError, check, quantiles, rss_mb
from bench.servers import ask
from bench.wire import post

JOBS = int(os.environ.get("BENCH_JOBS", "20000"))
TRANSPORT = os.environ.get("BENCH_TRANSPORT", "database")
S3 = "BACKBURNER_TEST_S3_URL"
"""The URL of the simulated S3 server (moto)."""
FILES = JOBS // 2
BODIES = JOBS // 2
BLOB_MB = min(1024, JOBS // 16)
FEW_SLOTS = 20
STEP_ROWS = sa.text("SELECT count(*) FROM step_results")
ALONE = 300
"""Number of steps of a job that runs alone."""
STEP_SLOTS = 200
WAITING = min(10_000, JOBS)
"""Number of jobs that wait while single ones are signalled."""
IDLE_SECONDS = min(10.0, JOBS / 2_000)
KEPT_ROWS = sa.text("SELECT count(*) FROM bench_kept")
CALLERS = 100
BULK = 500
NAPS = 1_000
PROBES = min(300, JOBS)
GAP_MS = (100, 200) if TRANSPORT.startswith("sqs") else (4, 10)
"""Time between probes; the simulated SQS is not idle any sooner."""
WARM = 5
"""Number of probes that open the connections and are not measured."""
FINISHED = 1_000_000

Figures = dict[str, Any]


def backburner(folder: Path, **options: Any) -> Backburner:
    """Open an instance on the store that is measured."""
    return opened(url_of(folder), **options)


def opened(url: str, **options: Any) -> Backburner:
    """Open an instance on a given store."""
    settings = Settings(store=url, transport=TRANSPORT, **options)
    return Backburner(settings, apps=[work.app])


def url_of(folder: Path) -> str:
    """Return the store's URL from the environment, or of a file in the folder."""
    return os.environ.get("BENCH_STORE") or f"sqlite:///{folder}/bench.db"


async def drain(folder: Path) -> Figures:
    """Run no-op jobs that are all queued when the worker starts."""
    async with backburner(folder) as bb:
        await fill(bb, JOBS)
        await until_told(JOBS)
        meter = await drained(bb, JOBS)
        await check(bb, Expected(JOBS, JOBS, 3 * JOBS))
        return meter.figures(JOBS) | {"rss_mb": rss_mb()}


async def drain_over_history(folder: Path) -> Figures:
    """Do the same in a store with a million finished jobs and their events."""
    async with backburner(folder):
        pass  # it makes the tables
    await asyncio.to_thread(history.fill, url_of(folder), FINISHED, fail=False)
    await asyncio.to_thread(come_to_rest, url_of(folder))
    async with backburner(folder) as bb:
        await fill(bb, JOBS)
        meter = await drained(bb, JOBS)
        done = JOBS + FINISHED
        await check(bb, Expected(done, done, 3 * done))
        return meter.figures(JOBS)


async def flows(folder: Path) -> Figures:
    """Run flows of three jobs each, all in one batch with a completion."""
    async with backburner(folder) as bb:
        batch = await filed(bb)
        with Meter() as meter:
            await bb.start_worker()
            while (await batch.wait(60.0)).state is not BatchState.FINISHED:
                pass
        await _until_quiet(bb)
        counts = await batch.counts()
        if counts["members"] != {"succeeded": FILES}:
            raise NotTrueError(f"the batch counts {counts}")
        done = 3 * FILES + 1
        await check(bb, Expected(done, done, 13 * FILES + 3))
        return meter.figures(3 * FILES) | {"rss_mb": rss_mb()}


async def filed(bb: Backburner) -> BatchTicket:
    """Open a batch and add every file's flow, a few hundred per call."""
    follows = {"capability": work.noop.name, "input": work.Payload(i=-1)}
    batch = await bb.open_batch(expected=FILES, completion=follows)
    for first in range(0, FILES, BULK):
        size = min(BULK, FILES - first)
        chain = work.extract >> work.chunk >> work.embed
        await batch.add(
            flows=[written(chain, value) for value in work.payloads(size, first)]
        )
    return batch


async def settled_with_bodies(folder: Path) -> Figures:
    """Run jobs that each write a row at settlement, in a worker with 20 slots."""
    async with backburner(folder, slots=FEW_SLOTS) as bb:
        await bb.transact(lambda tx: work.KEPT.create(tx.connection))
        for first in range(0, BODIES, BULK):
            size = min(BULK, BODIES - first)
            await bb.submit_many(work.keep, work.payloads(size, first))
        with Meter() as meter:
            await bb.start_worker()
            most = await _most_running(bb)
        kept = await bb.read(lambda v: v.connection.execute(KEPT_ROWS).scalar_one())
        if (kept, most <= FEW_SLOTS) != (BODIES, True):
            raise NotTrueError(f"{kept} rows were written, {most} jobs ran at once")
        await check(bb, Expected(BODIES, BODIES, 3 * BODIES))
        return meter.figures(BODIES) | {"most_running": most}


async def steps(folder: Path) -> Figures:
    """Store the results of steps: of a single job, then of many concurrent jobs."""
    async with backburner(folder, slots=STEP_SLOTS) as bb:
        await bb.start_worker()
        alone = await bb.submit(work.timed_steps, work.Payload(i=ALONE))
        await alone.result()
        await bb.stop_worker()
        jobs = JOBS // work.STEPS
        for first in range(0, jobs, BULK):
            size = min(BULK, jobs - first)
            await bb.submit_many(work.steps, work.payloads(size, first))
        meter = await drained(bb, jobs)
        rows = await bb.read(lambda v: v.connection.execute(STEP_ROWS).scalar_one())
        if rows != jobs * work.STEPS + ALONE:
            raise NotTrueError(f"{rows} results of steps are stored")
        singly = quantiles(work.step_seconds[WARM:])
        return meter.figures(jobs * work.STEPS) | {"alone_ms": singly["p50_ms"]}


async def signals(folder: Path) -> Figures:
    """Signal one of many waiting jobs at a time; measure their cost while idle."""
    async with backburner(folder) as bb:
        before = await asyncio.to_thread(_idle_worker, folder)
        await bb.start_worker()
        ids: list[str] = []
        for first in range(0, WAITING, BULK):
            size = min(BULK, WAITING - first)
            tickets = await bb.submit_many(work.waiter, work.payloads(size, first))
            ids += [ticket.id for ticket in tickets]
        await _until_state(bb, JobState.WAITING, WAITING)
        await bb.stop_worker()
        await asyncio.to_thread(come_to_rest, url_of(folder))
        idle = await asyncio.to_thread(_idle_worker, folder)
        await bb.start_worker()
        dice, begun = random.Random(1), dict[int, int]()
        for i in dice.sample(range(WAITING), min(WARM + PROBES, WAITING)):
            begun[i] = time.monotonic_ns()
            await bb.signal(ids[i], "go", i)
            await asyncio.sleep(dice.uniform(*GAP_MS) / 1000)
        await _until_state(bb, JobState.SUCCEEDED, len(begun))
        events = 3 * (WAITING + len(begun))
        await check(bb, Expected(WAITING, len(begun), events))
        probed = [*begun.items()][WARM:]
        starts = quantiles([(work.started[i] - at) / 1e9 for i, at in probed])
        resumes = quantiles([(work.resumed[i] - at) / 1e9 for i, at in probed])
        return {
            **starts,
            "resumed_ms": resumes["p50_ms"],
            "idle_cpu_percent": idle.cpu,
            "cpu_without_percent": before.cpu,
            "more_mb": round(idle.rss_mb - before.rss_mb, 1),
        }


class Idle(NamedTuple):
    """The resources that an idle worker uses."""

    cpu: float
    """CPU use of one core, in percent."""
    rss_mb: float


def _idle_worker(folder: Path) -> Idle:
    """Start a worker without jobs; return the resources that it uses."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "bench.rows", "worker", str(folder)],
        stdout=subprocess.PIPE,
    )
    try:
        worker.stdout.readline()  # type: ignore[union-attr]
        process = psutil.Process(worker.pid)
        process.cpu_percent()
        cpu = process.cpu_percent(interval=IDLE_SECONDS)
        return Idle(cpu, process.memory_info().rss / 1e6)
    finally:
        worker.terminate()
        worker.wait()


async def _until_state(bb: Backburner, state: JobState, count: int) -> None:
    while await bb.engine.store.count(JobFilter(state=state)) < count:
        await asyncio.sleep(0.05)


async def blobs(folder: Path) -> Figures:
    """Stream a blob of 1 GiB to a folder and back."""
    return await _streamed(folder, (folder / "blobs").as_uri())


async def blobs_s3(folder: Path) -> Figures:
    """Stream a blob of 1 GiB to the simulated S3 and back."""
    if not os.environ.get(S3):
        raise NotTrueError(f"{S3} is not set: nothing plays S3")
    place, query = buckets.made(os.environ[S3])
    return await _streamed(folder, f"{place}/bench?{query}")


async def _streamed(folder: Path, place: str) -> Figures:
    figures = await streaming.measure(url_of(folder), place, BLOB_MB)
    if not figures["is_same"]:
        raise NotTrueError("what was read is not what was written")
    return figures


async def _most_running(bb: Backburner) -> int:
    """Wait until all jobs have ended; return the most that ran at the same time."""
    most, running = 0, JobFilter(state=JobState.RUNNING)
    while len(work.finished) < BODIES:
        jobs = await bb.engine.store.jobs(running, before=None, limit=BODIES)
        most = max(most, len(jobs))
        await asyncio.sleep(0.05)
    while await bb.engine.store.depths():
        await asyncio.sleep(0.001)
    return most


async def submit_bulk(folder: Path) -> Figures:
    """Submit 500 jobs per call, each call durable when it returns."""
    async with backburner(folder) as bb:
        with Meter() as meter:
            await fill(bb, JOBS)
        await check(bb, Expected(JOBS, 0, JOBS))
        return meter.figures(JOBS)


async def submit_singly(folder: Path) -> Figures:
    """Submit one job per call from 100 concurrent tasks, durable when it returns."""
    waits: list[float] = []

    async def caller(bb: Backburner, first: int) -> None:
        for value in work.payloads(JOBS // CALLERS, first):
            begun = time.perf_counter()
            await bb.submit(work.noop, value)
            waits.append(time.perf_counter() - begun)

    async with backburner(folder) as bb:
        with Meter() as meter:
            await asyncio.gather(
                *(caller(bb, n * JOBS // CALLERS) for n in range(CALLERS))
            )
        await check(bb, Expected(JOBS, 0, JOBS))
        return meter.figures(JOBS) | quantiles(waits)


async def latency_here(folder: Path) -> Figures:
    """Submit to an idle worker of the same process, one job at a time."""
    async with backburner(folder) as bb:
        await bb.start_worker()
        waits = await probe(bb, work.started.get)
        done = PROBES + WARM
        await check(bb, Expected(done, done, 3 * done))
        return quantiles(waits)


async def latency_there(folder: Path) -> Figures:
    """Submit to an idle worker in another process; then measure it while idle."""
    async with backburner(folder) as bb:
        worker = subprocess.Popen(  # noqa: ASYNC220 - before anything is measured
            [sys.executable, "-m", "bench.rows", "worker", str(folder)],
            stdout=subprocess.PIPE,
        )
        await asyncio.to_thread(worker.stdout.readline)  # type: ignore[union-attr]
        waits = await probe(bb, lambda i: _started_at(folder, i))
        idle = await asyncio.to_thread(_idle_share, worker.pid)
        worker.terminate()
        await asyncio.to_thread(worker.wait)
        done = PROBES + WARM
        await check(bb, Expected(done, done, 3 * done))
        return quantiles(waits) | {"idle_cpu_percent": idle}


async def worker(folder: Path) -> Figures:
    """Run the worker of the other process, which prints the start of each handler."""
    times = sqlite3.connect(folder / "times.db", isolation_level=None)
    times.execute("PRAGMA synchronous = OFF")
    times.execute(
        "CREATE TABLE IF NOT EXISTS started (i INTEGER PRIMARY KEY, at INTEGER)"
    )
    async with backburner(folder) as bb:
        await bb.start_worker()
        work.on_start.append(
            lambda i, at: times.execute("INSERT INTO started VALUES (?, ?)", (i, at))
        )
        print("ready", flush=True)
        await asyncio.Event().wait()
    return {}


async def loaded(folder: Path) -> Figures:
    """Run plain jobs, then as many with budget, webhook and events."""
    return await compare(url_of(folder), max(500, JOBS // 10))


async def naps(folder: Path) -> Figures:
    """Run 1,000 concurrent jobs that each wait for a second."""
    async with backburner(folder, slots=NAPS) as bb:
        await bb.submit_many(work.nap, work.payloads(NAPS))
        meter = await drained(bb, NAPS)
        await check(bb, Expected(NAPS, NAPS, 3 * NAPS))
        return {"wall_s": round(meter.wall, 3), "rss_mb": rss_mb()}


async def http(folder: Path) -> Figures:
    """Post jobs over 100 connections to one API process; count the 202 answers."""
    server = subprocess.Popen(  # noqa: ASYNC220 - before anything is measured
        [
            *(sys.executable, "-m", "backburner", "serve", "--dev", "--no-worker"),
            *("--port", "0", "--store", url_of(folder)),
            *("--log-level", "error", "--app", "bench.work:app"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        port = await asyncio.to_thread(_port_of, server)
        before = psutil.Process(server.pid).cpu_times()
        begun = time.perf_counter()
        waits = await _post_all(port)
        wall = time.perf_counter() - begun
        after = psutil.Process(server.pid).cpu_times()
    finally:
        server.terminate()
        await asyncio.to_thread(server.wait)
    async with backburner(folder) as bb:
        await check(bb, Expected(JOBS // 2, 0, JOBS // 2))
    used = after.user + after.system - before.user - before.system
    return {
        "per_second": round(len(waits) / wall),
        "cpu_us": round(used / len(waits) * 1e6, 1),
        **quantiles(waits),
    }


async def owners(folder: Path) -> Figures:
    """List jobs, failures and events of a small owner: alone, and among a million."""
    with among_owners.beside(url_of(folder)) as alone:
        for url in (alone, url_of(folder)):
            async with opened(url):
                pass  # it makes the tables
            await asyncio.to_thread(among_owners.fill, url, alone=url == alone)
            await asyncio.to_thread(come_to_rest, url)
        async with opened(alone) as bb, opened(url_of(folder)) as among:
            return await among_owners.compared(bb, among)


async def sentences(folder: Path) -> Figures:
    """Create tasks from sentences: two services, a worker and a model's server."""
    # Imported here, so that rows that measure memory do not include it.
    from bench.sentences import FEWEST, tasked  # noqa: PLC0415

    count = max(FEWEST, JOBS // 20)
    return await tasked(url_of(folder), TRANSPORT, folder, count)


async def conversations(folder: Path) -> Figures:
    """Reply to messages with `chat`: a server, a worker and the mock."""
    from bench.conversations import FEWEST, answered  # noqa: PLC0415 - as above

    count = max(FEWEST, JOBS // 20)
    return await answered(url_of(folder), TRANSPORT, folder, count)


async def searches(folder: Path) -> Figures:
    """Search the chunks of one user, 100,000 with the default number of jobs."""
    from bench.searching import searched  # noqa: PLC0415 - as above

    return await searched(url_of(folder), JOBS * 5)


async def embedding(folder: Path) -> Figures:
    """Embed chunks with the offline model, after preparing it if necessary."""
    from bench.searching import embedded  # noqa: PLC0415 - as above

    del folder
    return await embedded()


async def deferrals(folder: Path) -> Figures:
    """Defer commands from Discord while 200 other jobs run."""
    from bench.deferrals import FEWEST, deferred  # noqa: PLC0415 - as above

    count = max(FEWEST, JOBS // 20)
    return await deferred(url_of(folder), TRANSPORT, folder, count)


async def uploads(folder: Path) -> Figures:
    """Process files with `documents`, without the rate limits of its queues."""
    from bench.uploads import FEWEST, MOST, processed  # noqa: PLC0415 - as above

    count = min(MOST, max(FEWEST, JOBS // 20))
    return await processed(url_of(folder), TRANSPORT, folder, count, is_lifted=True)


async def uploads_limited(folder: Path) -> Figures:
    """Process files with `documents` and its default limits."""
    from bench.uploads import FEWEST, processed  # noqa: PLC0415 - as above

    count = min(100, max(FEWEST, JOBS // 20))
    return await processed(url_of(folder), TRANSPORT, folder, count, is_lifted=False)


async def _post_all(port: int) -> list[float]:
    waits: list[float] = []

    async def caller(first: int) -> None:
        streams = await asyncio.open_connection("127.0.0.1", port)
        for value in work.payloads(JOBS // 2 // CALLERS, first):
            said = json.dumps({"capability": "bench.noop", "input": value.model_dump()})
            begun = time.perf_counter()
            await post(streams, "/v1/jobs", said)
            waits.append(time.perf_counter() - begun)
        streams[1].close()

    each = JOBS // 2 // CALLERS
    await asyncio.gather(*(caller(n * each) for n in range(CALLERS)))
    return waits


def _port_of(server: "subprocess.Popen[str]") -> int:
    for line in server.stderr or ():
        if "ready at" in line:
            return int(line.rsplit(":", 1)[1].strip().rstrip("/"))
    raise RuntimeError("the server did not start")


async def fill(bb: Backburner, count: int) -> None:
    """Submit no-op jobs in bulk."""
    for first in range(0, count, BULK):
        size = min(BULK, count - first)
        await bb.submit_many(work.noop, work.payloads(size, first))


async def until_told(count: int) -> None:
    """Wait until the broker, if one is used, has a message for each job."""
    broker = find_broker(TRANSPORT)
    if broker is None:
        return
    await broker.open()
    while (await broker.depths([work.QUEUE]))[work.QUEUE] < count:
        await asyncio.sleep(0.05)
    await broker.close()


async def drained(bb: Backburner, count: int) -> Meter:
    """Run a worker until `count` handlers have run and all jobs have ended."""
    with Meter() as meter:
        await bb.start_worker()
        while len(work.finished) < count:
            await asyncio.sleep(0.005)
        while await bb.engine.store.depths():
            await asyncio.sleep(0.001)
    return meter


async def probe(bb: Backburner, started_at: Callable[[int], int | None]) -> list[float]:
    """Submit one job at a time with a pause; return the times from submit to start."""
    await bb.submit_many(work.noop, work.payloads(WARM, PROBES))
    await _until_quiet(bb)
    begun: dict[int, int] = {}
    dice = random.Random(1)
    for i, value in enumerate(work.payloads(PROBES)):
        begun[i] = time.monotonic_ns()
        await bb.submit(work.noop, value)
        await asyncio.sleep(dice.uniform(*GAP_MS) / 1000)
    await _until_quiet(bb)
    return [((started_at(i) or 0) - at) / 1e9 for i, at in begun.items()]


async def _until_quiet(bb: Backburner) -> None:
    while await bb.engine.store.depths():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)


def come_to_rest(url: str) -> None:
    """Let PostgreSQL do the maintenance that a slowly grown history has behind it."""
    if url.startswith("postgres"):
        ask(url, "VACUUM ANALYZE")
        ask(url, "CHECKPOINT")


def _started_at(folder: Path, i: int) -> int | None:
    with contextlib.closing(sqlite3.connect(folder / "times.db")) as db:
        found = db.execute("SELECT at FROM started WHERE i = ?", (i,)).fetchone()
    return found[0] if found else None


def _idle_share(pid: int) -> float:
    process = psutil.Process(pid)
    process.cpu_percent()
    return process.cpu_percent(interval=10.0)


ROWS: dict[str, Callable[[Path], Awaitable[Figures]]] = {
    row.__name__: row
    for row in (
        drain,
        drain_over_history,
        flows,
        settled_with_bodies,
        steps,
        signals,
        blobs,
        blobs_s3,
        submit_bulk,
        submit_singly,
        latency_here,
        latency_there,
        loaded,
        naps,
        http,
        owners,
        sentences,
        conversations,
        deferrals,
        uploads,
        uploads_limited,
        searches,
        embedding,
        worker,
    )
}


def main() -> None:
    """Run one row and print its figures."""
    telemetry.configure(level="error", pretty=False)
    name, folder = sys.argv[1:]
    spare_collector()  # as every process of the command line does
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(ROWS[name](Path(folder)))))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
