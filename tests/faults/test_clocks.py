"""Machines that disagree about the time: the store's clock is the one that counts."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from backburner.domain.jobs.job import JobState

LEASE = 1.5
HALF_AN_HOUR = timedelta(minutes=30)
AGE = sa.text("UPDATE jobs SET finished_at = finished_at - 7200000 WHERE id = :id")
KEEP_HALF_AN_HOUR = {"BACKBURNER_KEEP_SUCCEEDED_DAYS": str(1 / 48)}
ON_POSTGRES = pytest.mark.parametrize("store_url", ["postgres"], indirect=True)


async def hold_beside(module, fleet, client, gate):
    """Have a job run until the gate opens, beside a worker whose clock is wrong."""
    await fleet.worker().ready()
    [job] = await client.submit("work", {"gate": str(gate)})
    await client.seen(job, "job.started")
    await fleet.worker(module).ready()
    return job


@pytest.mark.parametrize("module", ["an_hour_ahead", "an_hour_behind"])
async def test_a_machine_an_hour_off_rescues_nobody_early(fleet, client, gate, module):
    job = await hold_beside(module, fleet, client, gate)
    await client.ended(await client.submit("work", {"seconds": 2 * LEASE}))
    gate.unlink()
    [ended] = await client.ended([job])

    assert 0 == ended.crashes
    assert ["job.queued", "job.started", "job.succeeded"] == await client.types(job)


class Jobs(NamedTuple):
    """Jobs whose time is in half an hour, each beside one whose time is now."""

    later: str
    due: str
    waiting: str
    overdue: str
    ended: str
    old: str


async def time_of(client):
    return datetime.fromtimestamp(await client.store.read_clock() / 1000, tz=UTC)


async def judged_by(module, fleet, client):
    """Have one worker alone decide what is due, overdue and old."""
    first = fleet.worker()
    await first.ready()
    ended, old = await client.submit("work", {}, {})
    await client.ended([ended, old])
    first.kill()
    await client.store.pause("default", paused=True)
    now, soon = await time_of(client), timedelta(seconds=1)
    [later] = await client.submit("work", {}, delay=HALF_AN_HOUR)
    [due] = await client.submit("work", {}, delay=soon)
    [waiting] = await client.submit("work", {}, start_by=now + HALF_AN_HOUR)
    [overdue] = await client.submit("work", {}, start_by=now + soon)
    await client.store.transact(lambda tx: tx.connection.execute(AGE, {"id": old}))
    await fleet.worker(module, **KEEP_HALF_AN_HOUR).ready()
    return Jobs(later, due, waiting, overdue, ended, old)


def is_gone(client, job):
    async def look():
        return not await client.store.find([job])

    return look


@ON_POSTGRES
async def test_a_machine_an_hour_ahead_ends_starts_and_prunes_nothing_early(
    fleet, client, eventually
):
    jobs = await judged_by("an_hour_ahead", fleet, client)
    # What is due is dealt with together with whatever is taken to be due.
    await client.seen(jobs.due, "job.queued")
    await client.ended([jobs.overdue])
    await eventually(is_gone(client, jobs.old))
    found = await client.store.find([jobs.later, jobs.waiting, jobs.ended])

    assert {
        jobs.later: JobState.SCHEDULED,
        jobs.waiting: JobState.QUEUED,
        jobs.ended: JobState.SUCCEEDED,
    } == {job.id: job.state for job in found}


@ON_POSTGRES
async def test_one_that_goes_by_its_own_clock_does_all_three(fleet, client, eventually):
    jobs = await judged_by("an_hour_ahead_of_the_store", fleet, client)
    assert await client.seen(jobs.later, "job.queued")
    [waiting] = await client.ended([jobs.waiting])
    await eventually(is_gone(client, jobs.ended))

    assert JobState.FAILED == waiting.state


@ON_POSTGRES
@pytest.mark.parametrize(
    ("module", "state"),
    [
        ("an_hour_ahead", JobState.SUCCEEDED),
        ("an_hour_ahead_of_the_store", JobState.FAILED),
    ],
)
async def test_a_worker_judges_deadlines_by_the_stores_clock(
    fleet, client, module, state
):
    await fleet.worker(module).ready()
    deadline = await time_of(client) + HALF_AN_HOUR
    [ended] = await client.ended(await client.submit("work", {}, deadline=deadline))

    assert state == ended.state


@pytest.mark.thorough
@ON_POSTGRES
async def test_one_that_judges_by_its_own_clock_does(fleet, client, gate):
    job = await hold_beside("removes_workers_by_its_clock", fleet, client, gate)

    assert await client.seen(job, "job.stalled")
