"""Workers that die without a word."""

import asyncio
import random
from collections import deque

import pytest

from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.transitions import Limits

KILLS = 15
PAUSE = 0.7
LEASE = 1.5
MANY = {"BACKBURNER_CRASH_LIMIT": "1000"}


async def test_jobs_survive_workers_killed_again_and_again(fleet, client):
    seconds = random.Random(1)
    jobs = await client.submit(
        "work", *({"seconds": seconds.uniform(0.05, 0.4)} for _ in range(500))
    )
    workers = deque(fleet.worker(**MANY) for _ in range(3))
    done = asyncio.ensure_future(client.ended(jobs))
    for _ in range(KILLS):
        await asyncio.wait({done}, timeout=PAUSE)
        (await workers.popleft().ready()).kill()
        workers.append(fleet.worker(**MANY))
    ended = await done

    assert {JobState.SUCCEEDED} == {job.state for job in ended}
    assert sum(job.crashes for job in ended) > 0
    assert [] == await client.audit(Limits(crashes=1000))


async def test_without_rescue_a_killed_workers_jobs_stay(fleet, client):
    jobs = await client.submit("work", *({"seconds": 60} for _ in range(4)))
    first = fleet.worker("without_rescue")
    for job in jobs:
        await client.seen(job, "job.started")
    first.kill()
    await fleet.worker("without_rescue").ready()
    [other] = await client.submit("work", {})

    assert [JobState.SUCCEEDED] == [job.state for job in await client.ended([other])]
    left = await client.ended(jobs, within=2 * LEASE)
    assert {JobState.RUNNING} == {job.state for job in left}


async def test_a_job_that_kills_its_workers_ends_and_its_neighbours_succeed(
    client, restarting
):
    [poison] = await client.submit("crash", None)
    healthy = await client.submit("work", *({"seconds": 0.1} for _ in range(50)))
    restarting(2)
    ended = await client.ended(healthy)
    [dead] = await client.ended([poison])

    assert {JobState.SUCCEEDED} == {job.state for job in ended}
    assert (JobState.FAILED, "WORKER_LOST", 3) == (
        dead.state,
        dead.error.code,
        dead.crashes,
    )
    assert [] == await client.audit()


@pytest.mark.thorough
async def test_without_a_crash_limit_it_goes_on_killing(client, restarting):
    [poison] = await client.submit("crash", None)
    restarting(2, **MANY)
    last = 0
    for _ in range(5):  # the usual limit would have ended it after the third
        last = (await client.seen(poison, "job.started", after=last)).n


async def test_a_poisonous_job_that_is_retried_by_hand_starts_from_no_crashes(
    client, restarting
):
    [poison] = await client.submit("crash", None)
    restarting(1, BACKBURNER_CRASH_LIMIT="1")
    await client.ended([poison])
    retried = await client.engine.retry(poison)
    [dead] = await client.ended([poison])

    assert (0, 1) == (retried.crashes, retried.generation)
    assert (JobState.FAILED, 1, 1) == (dead.state, dead.crashes, dead.generation)
    assert [] == await client.audit(Limits(crashes=1))
