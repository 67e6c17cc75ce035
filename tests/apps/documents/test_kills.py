"""Workers that are killed while files are processed, and limits over several."""

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import asynccontextmanager
from itertools import pairwise

import orjson
import pytest
import sqlalchemy as sa

from backburner.adapters import find_store
from backburner.clock import SystemClock
from backburner.ports.faults import NoFaults
from backburner.stores.tables import events, jobs, workers
from backburner.testing.broker.acts import pause
from backburner_apps.documents.chunk_tables import chunks
from tests.apps.documents.conftest import FAST, until
from tests.apps.documents.fleet import Fleet, Uploader
from tests.ports import held_port

ENDS = ("job.succeeded", "job.failed", "job.cancelled", "job.retrying", "job.stalled")


@asynccontextmanager
async def deployed(folder, url, **settings):
    """Start a server; give the processes, a client and the store behind them."""
    store = find_store(url, SystemClock(), NoFaults())
    await store.open()
    with held_port() as port:
        fleet, client = Fleet(folder, url, port, **settings), Uploader(port)
        try:
            await fleet.serve()
            yield fleet, client, store
        finally:
            fleet.kill()
            await client.http.aclose()
            await store.close()


def texts(count):
    return [f"File {n} says that river {n} is long.".encode() for n in range(count)]


async def filled(client, batch_id, contents):
    return [
        await client.upload(batch_id, content, f"{n}.txt")
        for n, content in enumerate(contents)
    ]


async def published(store, topic):
    def look(connection):
        rows = sa.select(events.c.type, events.c.data).where(events.c.topic == topic)
        return connection.execute(rows.order_by(events.c.seq)).all()

    return [(row.type, orjson.loads(row.data)) for row in await store.snapshot(look)]


@pytest.mark.parametrize(
    ("files", "kills"), [(24, 3), pytest.param(100, 12, marks=pytest.mark.chaos)]
)
async def test_every_file_becomes_ready_though_workers_are_killed(
    tmp_path, store_url, files, kills, record_property
):
    dice = random.Random(files)
    async with deployed(tmp_path, store_url, **FAST) as (fleet, client, store):
        batch_id = await client.batch(files)
        running = [fleet.work(), fleet.work()]
        contents, ids = texts(files), []
        for part in range(kills + 1):
            mine = contents[part :: kills + 1]
            loading = asyncio.create_task(filled(client, batch_id, mine))
            if part < kills:
                is_done = ready(client, batch_id, len(ids) + len(mine))
                running.remove(await killed_at_work(running, store, is_done, dice))
                running.append(fleet.work())
            ids += await loading
        await until(completed(client, batch_id), seconds=180)
        told = await published(store, f"batch:{batch_id}")
        summary = (await client.summary(batch_id))["summary"]
        rows = await store.snapshot(lambda c: c.execute(sa.select(chunks)).all())

    assert (summary["ready"], summary["failed"]) == (files, 0)
    stalls = [data for type_, data in told if type_ == "file:processing-stalled"]
    assert stalls, "the owner hears of it"
    assert all(data["fileId"] in ids and data["retryCount"] >= 1 for data in stalls)
    assert {(file_id, 0) for file_id in ids} == {(r.file_id, r.number) for r in rows}
    assert len(rows) == files, "no chunk is there twice"
    states = {file_id: [] for file_id in ids}
    for type_, data in told:
        if type_ == "file:status-changed":
            states[data["fileId"]].append((data["from"], data["to"]))
    for path in states.values():
        assert len(path) == len(set(path)) == 6
        assert all(one[1] == two[0] for one, two in pairwise(path))
    record_property(
        "told", f"documents: {files} files, {kills} kills, {len(stalls)} stalls told"
    )


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        (
            14,
            {
                "extract_at_once": 2,
                "chunk_at_once": 1,
                "embed_at_once": 1,
                "extract_per_minute": 5,
                "chunk_per_minute": 4,
                "embed_per_minute": 3,
                "rate_seconds": 2,
            },
        ),
        pytest.param(120, {}, marks=pytest.mark.chaos),
    ],
    ids=["small", "contract"],
)
async def test_rates_and_concurrency_hold_over_all_workers(
    tmp_path, store_url, files, limits
):
    allowed = {
        "file-extract": (limits.get("extract_at_once", 8), "extract_per_minute", 100),
        "file-chunk": (limits.get("chunk_at_once", 5), "chunk_per_minute", 50),
        "file-embed": (limits.get("embed_at_once", 5), "embed_per_minute", 50),
    }
    window = limits.get("rate_seconds", 60) * 1000
    async with deployed(tmp_path, store_url, **limits) as (fleet, client, store):
        batch_id = await client.batch(files)
        await filled(client, batch_id, texts(files))
        for _ in range(3):
            fleet.work()
        await until(completed(client, batch_id), seconds=600)
        summary = (await client.summary(batch_id))["summary"]
        log = await store.snapshot(of_jobs)
        exceeded = await published(store, "documents:queues")

    assert summary["ready"] == files, "nothing is dropped"
    names = set()
    for queue, (at_once, name, per_minute) in allowed.items():
        mine = [row for row in log if row.queue == queue]
        starts = [row for row in mine if row.type == "job.started"]
        names |= {orjson.loads(row.data)["worker"] for row in starts}
        most = limits.get(name, per_minute)
        assert fits([row.at for row in starts], window, most), (queue, starts)
        assert most_at_once(mine) <= at_once, queue
    assert len(names) == 3, "all of them took part"
    told = Counter(data["queue"] for _, data in exceeded)
    assert told, "administrators hear of it"
    assert {type_ for type_, _ in exceeded} == {"queue:rate-limit-exceeded"}
    minutes = [(data["queue"], data["timestamp"]) for _, data in exceeded]
    assert len(minutes) == len(set(minutes))


CLOCKS_MS = 250
"""By so much the times of events may differ from the clock that windows go by."""


def fits(times, window, most):
    """
    Say whether starts can be put into windows of which none has more than allowed.

    One that is near the edge of a window may belong to either side.
    """
    counts = Counter()
    for at in sorted(times):
        sides = ((at - CLOCKS_MS) // window, (at + CLOCKS_MS) // window)
        place = next((side for side in sides if counts[side] < most), None)
        if place is None:
            return False
        counts[place] += 1
    return True


def test_too_many_starts_in_a_window_are_found():
    early = [20_400, 20_600, 20_900, 20_999]
    assert fits([*early, 22_100], 2_000, 4)
    assert not fits([*early, 20_500], 2_000, 4)


def of_jobs(connection):
    """Return what happened to the jobs of files, in order."""
    rows = (
        sa.select(events.c.type, events.c.at, events.c.data, jobs.c.queue)
        .join(jobs, events.c.job == jobs.c.seq)
        .where(jobs.c.queue.like("file-%"))
        .order_by(events.c.seq)
    )
    return connection.execute(rows).all()


def most_at_once(rows):
    """Return how many jobs of a queue ran at the same time, at most."""
    running = most = 0
    for row in rows:
        running += (row.type == "job.started") - (row.type in ENDS)
        most = max(most, running)
    return most


def ready(client, batch_id, count):
    async def look():
        return (await client.summary(batch_id))["summary"]["ready"] >= count

    return look


def completed(client, batch_id):
    async def look():
        return (await client.summary(batch_id))["status"] == "completed"

    return look


async def killed_at_work(running, store, is_done, dice):
    """Kill a worker that has a stage of a file under way, if there is one to find."""
    while not await is_done():
        busy = await pids_at_work(store)
        for worker in (worker for worker in running if worker.pid in busy):
            os.kill(worker.pid, signal.SIGSTOP)
            if worker.pid in await pids_at_work(store):
                worker.kill()
                return worker
            os.kill(worker.pid, signal.SIGCONT)
        await pause()
    victim = dice.choice(running)
    victim.kill()
    return victim


async def pids_at_work(store):
    """Return the processes that work on a stage of a file."""
    busy = (
        sa.select(workers.c.pid)
        .join(jobs, jobs.c.worker == workers.c.id)
        .where(jobs.c.state == "running", jobs.c.queue.like("file-%"))
    )
    return await store.snapshot(lambda c: {*c.execute(busy).scalars()})
