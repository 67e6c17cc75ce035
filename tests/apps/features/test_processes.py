"""Workers that die, as processes over one database."""

import asyncio

import pytest

from backburner.testing.broker.acts import pause
from backburner_apps.features.tables import results
from tests.apps.features.conftest import POSTING
from tests.apps.process import until
from tests.apps.programs import launch

KILLED = 137
FAST = {
    "BACKBURNER_POLL_SECONDS": "0.3",
    "BACKBURNER_BEAT_SECONDS": "0.5",
    "BACKBURNER_LEASE_SECONDS": "2",
}


@pytest.fixture
async def worker(tmp_path, store_url):
    """Start workers over the database of the test."""
    started = []

    async def begin(**settings):
        ours = {"BACKBURNER_STORE": store_url, **FAST, **settings}
        ours["BACKBURNER_BLOBS"] = f"file://{tmp_path}/blobs"
        path = tmp_path / f"worker-{len(started)}.log"
        arguments = "worker", "--dev", "--app", "features"
        process = await asyncio.to_thread(
            launch, path, *arguments, cwd=tmp_path, settings=ours
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


async def ended(process):
    async with asyncio.timeout(60):
        while (code := process.poll()) is None:
            await pause()
    return code


async def test_a_worker_that_dies_after_storing_the_result_leaves_one_result(
    start, worker
):
    features = await start(works=False, lease_seconds=2, beat_seconds=0.5)
    job_id = (await features.submit())["job_id"]

    dies = await worker(BACKBURNER_FAULT="blobs.committed")
    code = await ended(dies)
    stored = await features.blobs()
    meanwhile = (await features.status(job_id)).json()["status"]
    await worker()
    done = await features.ended(job_id)
    job = await features.job(job_id)
    fetched = await features.client.get(done["result_url"])

    assert KILLED == code
    assert 1 == len(stored), "control: the result was stored before it died"
    assert "PROCESSING" == meanwhile
    assert "COMPLETED" == done["status"]
    assert 1 == job.crashes, "control: it ran twice"
    assert [each.id for each in stored] == [each.id for each in await features.blobs()]
    assert 1 == len(await features.rows(results))
    assert "GAP_QUESTIONS_GENERATED" == fetched.json()["code"]


@pytest.mark.one_store
async def test_a_job_that_is_lost_with_its_worker_has_failed(start, worker):
    features = await start(
        works=False, lease_seconds=2, beat_seconds=0.5, crash_limit=1
    )
    posting = f"{POSTING} [[mock: hang]]"
    job_id = (await features.submit(posting=posting))["job_id"]

    async def is_running():
        return (await features.job(job_id)).state == "running"

    process = await worker()
    await until(is_running)
    process.kill()
    process.wait()
    shown = await features.ended(job_id)

    told = (shown["status"], shown["code"], shown["error"])
    assert ("FAILED", "INTERNAL_ERROR", "The job could not be processed") == told
    assert "WORKER_LOST" == (await features.job(job_id)).error.code
