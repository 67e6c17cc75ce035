"""A staged retry whose worker is lost midway, or that others are ahead of."""

import asyncio

import orjson
import pytest

from backburner import Context, PermanentError, capability
from backburner.engine.groups import bulk
from backburner.engine.submit.submission import LOCAL

FAILED = 5


@pytest.fixture
def runs():
    """The numbers of the jobs that ran, in order."""
    return []


@pytest.fixture
def failed(running, runs):
    """Open an instance with jobs that failed and fail again whenever they run."""

    async def start():
        @capability("mend", max_attempts=1)
        async def mend(_ctx: Context, number: int) -> None:
            runs.append(number)
            raise PermanentError("not mended")

        bb = await running(mend)
        tickets = [await bb.submit(mend, number) for number in range(FAILED)]
        for ticket in tickets:
            await ticket.wait()
        runs.clear()
        return bb

    return start


async def asked(bb):
    """Ask for a staged retry of all that failed; return the id of its job."""
    asked = bulk.BulkInput(action="retry", staged=True, matched=FAILED)
    engine = bb.engine
    new = bulk.new_job("job_staged", engine.now(), LOCAL, asked, None)
    return (await engine.store_jobs([new]))[0].id


async def result(bb, job_id):
    job = await bb.engine.wait(job_id, timeout=60)
    assert job.output, job.error
    return orjson.loads(job.output)


async def test_a_stage_whose_worker_is_lost_retries_the_same_job_and_once(
    failed, runs, monkeypatch
):
    bb = await failed()
    retry, tried = bb.engine.retry_jobs, asyncio.get_running_loop().create_future()

    async def lost(jobs):
        """Retry, wait until the jobs have failed again, and never return."""
        await retry(jobs)
        for job in jobs:
            await bb.engine.wait(job.id, timeout=60)
        tried.set_result([job.id for job in jobs])
        await asyncio.Event().wait()

    monkeypatch.setattr(bb.engine, "retry_jobs", lost)
    job_id = await asked(bb)
    ids = await tried
    await bb.stop_worker(grace=0)
    monkeypatch.setattr(bb.engine, "retry_jobs", retry)
    await bb.start_worker()

    told = await result(bb, job_id)
    assert [ids] == [stage["ids"] for stage in told["stages"]]
    assert 1 == len(runs), "the stage of one ran one job, once"
    assert told["stopped"]


async def test_a_staged_retry_does_not_count_what_others_retried(failed, monkeypatch):
    bb = await failed()
    retry = bb.engine.retry_jobs

    async def late(jobs):
        for job in jobs:
            await bb.engine.retry(job.id)
            await bb.engine.wait(job.id, timeout=60)
        return await retry(jobs)

    monkeypatch.setattr(bb.engine, "retry_jobs", late)
    told = await result(bb, await asked(bb))
    assert (0, 1) == (told["changed"], told["skipped"])
