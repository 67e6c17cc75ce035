"""A staged retry whose worker is lost midway, or that others are ahead of."""

import asyncio
from collections import Counter
from datetime import timedelta

import orjson
import pytest

from backburner import Budget, Context, PermanentError, capability
from backburner.domain.jobs.job import Owner, Tenant
from backburner.engine.groups import bulk
from backburner.engine.submit.submission import LOCAL
from backburner.testing.broker.acts import pause

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


async def asked(bb, *, staged=True):
    """Ask for a staged retry of all that failed; return the id of its job."""
    asked = bulk.BulkInput(action="retry", staged=staged, matched=FAILED)
    engine = bb.engine
    new = bulk.new_job("job_staged", engine.now(), LOCAL, asked, None)
    return (await engine.store_jobs([new]))[0].id


async def result(bb, job_id):
    job = await bb.engine.wait(job_id, Tenant(LOCAL.tenant), timeout=60)
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


@pytest.mark.parametrize("staged", [False, True])
async def test_a_budget_that_is_used_up_keeps_no_other_job_from_its_retry(
    running, staged
):
    runs = Counter()

    @capability("mend", max_attempts=1, tokens=10)
    async def mend(_ctx: Context, number: int) -> None:
        runs[number] += 1
        if runs[number] == 1:
            raise PermanentError("not mended")

    bb = await running(mend)
    ann, bob = Owner("default", "ann"), Owner("default", "bob")
    # The oldest are those of ann, who has two more among the last.
    owners = [ann] * 3 + [bob] * 14 + [ann] * 2
    for number, owner in enumerate(owners):
        await (await bb.submit(mend, number, owner=owner)).wait()
    await bb.budgets.put(Budget("user", tokens=0, of="default/ann"))

    told = await result(bb, await asked(bb, staged=staged))
    assert (14, 5, 5) == tuple(told[n] for n in ("changed", "skipped", "over_budget"))
    assert [1, 10] * staged == [stage["succeeded"] for stage in told["stages"]]
    of_bob = {n for n, owner in enumerate(owners) if owner is bob}
    async with asyncio.timeout(60):
        while {n for n, times in runs.items() if times == 2} != of_bob:
            await pause()
    assert 2 == max(runs.values())


async def test_a_stage_that_does_not_end_stops_the_retry(running, monkeypatch):
    first = True

    @capability("mend", max_attempts=1)
    async def mend(ctx: Context, _number: int) -> None:
        nonlocal first
        if first:
            first = False
            raise PermanentError("not mended")
        await ctx.wait("never")

    bb = await running(mend)
    await (await bb.submit(mend, 1)).wait()
    monkeypatch.setattr(bulk, "LONGEST_STAGE", timedelta())
    told = await result(bb, await asked(bb))

    assert "1 of 1 had not ended 0 hours after their retry" == told["stopped"]
    assert 1 == told["changed"]


def test_the_pauses_of_a_stage_grow_from_one_second_to_thirty():
    day, at, looks = 24 * 3_600, 0.0, 0
    pauses = []
    while at < day:
        pauses.append(bulk.pause_after(timedelta(seconds=at)).total_seconds())
        at += pauses[-1]
        looks += 1

    assert pauses == sorted(pauses)
    assert (1, 30) == (pauses[0], pauses[-1])
    assert looks < 3_000
