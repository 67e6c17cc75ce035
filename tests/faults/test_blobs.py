"""Processes that die between a large content and the commit that names it."""

import hashlib
import os

import httpx2
import pytest

from backburner.blobs.filesystem import FileBlobs
from backburner.clock import SystemClock, SystemDice
from backburner.engine.blobs.payloads import Payloads, Sweeper
from backburner.engine.submit.submission import LOCAL
from backburner.ports.faults import NoFaults
from backburner.ports.store.maintenance import JobFilter

BODY = {"capability": "shout", "input": {"text": "x" * 500_000}}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "contents"


async def submit_and_die(fleet, root, fault):
    process = fleet.serve(
        "breakable",
        "--no-worker",
        BACKBURNER_FAULT=fault,
        BACKBURNER_BLOBS=root.as_uri(),
    )
    await process.ready()
    async with httpx2.AsyncClient(
        base_url=process.address, timeout=60, trust_env=False
    ) as caller:
        with pytest.raises(httpx2.TransportError):
            await caller.post("/v1/jobs", json=BODY)
    return await process.ended()


async def sweep_as_if_days_later(store, root):
    payloads = Payloads(FileBlobs(root, SystemDice(), NoFaults()), store)
    long_ago = SystemClock().now() / 1000 - 2 * 86_400
    for folder in root.glob("*/*"):
        os.utime(folder, (long_ago, long_ago))
    await Sweeper(store, payloads, SystemClock()).sweep()


def files_in(root):
    return [path for path in root.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("fault", "name"), [("blobs.written", ".input"), ("blobs.put", "input")]
)
async def test_a_content_without_its_job_is_swept(fleet, client, root, fault, name):
    code = await submit_and_die(fleet, root, fault)
    left, jobs = (
        files_in(root),
        await client.store.jobs(JobFilter(), before=None, limit=9),
    )
    await sweep_as_if_days_later(client.store, root)

    assert 137 == code
    assert [True] == [path.name.startswith(name) for path in left]
    assert [] == list(jobs)
    assert [] == files_in(root)


async def test_a_content_whose_job_was_committed_is_not_swept(fleet, client, root):
    code = await submit_and_die(fleet, root, "submit.after_commit")
    (listed,) = await client.store.jobs(JobFilter(), before=None, limit=9)
    (job,) = await client.store.find([listed.id])
    await sweep_as_if_days_later(client.store, root)
    payloads = Payloads(FileBlobs(root, SystemDice(), NoFaults()))

    assert 137 == code
    assert BODY["input"]["text"] in await payloads.text(job.input)


async def store_and_die(fleet, client, root, fault):
    """Have a worker write a blob of its application, or delete it, and die there."""
    worker = fleet.worker(BACKBURNER_FAULT=fault, BACKBURNER_BLOBS=root.as_uri())
    await worker.ready()
    await client.submit("store", 3)
    return await worker.ended()


async def rows(client):
    return await client.store.list_blobs("breakable", LOCAL, after=0, limit=9)


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("blobs.streaming", ".content"),
        ("blobs.streaming:2", ".content"),
        ("blobs.written", ".content"),
        ("blobs.streamed", "content"),
    ],
)
async def test_a_blob_that_was_not_committed_leaves_nothing(
    fleet, client, root, fault, name
):
    code = await store_and_die(fleet, client, root, fault)
    left = files_in(root)
    await sweep_as_if_days_later(client.store, root)

    assert 137 == code
    assert [True] == [path.name.startswith(name) for path in left]
    assert [] == list(await rows(client))
    assert [] == files_in(root)


async def test_a_blob_that_was_committed_is_whole_and_stays(fleet, client, root):
    code = await store_and_die(fleet, client, root, "blobs.committed")
    await sweep_as_if_days_later(client.store, root)
    [blob] = await rows(client)

    assert 137 == code
    assert 3 * 1024 * 1024 == blob.size
    content = FileBlobs(root, SystemDice(), NoFaults()).read(blob.key)
    assert blob.sha256 == hashlib.sha256(content).hexdigest()


async def test_a_blob_whose_row_was_deleted_is_swept(fleet, client, root):
    await store_and_die(fleet, client, root, "blobs.committed")
    code = await store_and_die(fleet, client, root, "blobs.removed")
    left = files_in(root)
    await sweep_as_if_days_later(client.store, root)

    assert 137 == code
    assert 1 == len(left)
    assert [] == list(await rows(client))
    assert [] == files_in(root)
