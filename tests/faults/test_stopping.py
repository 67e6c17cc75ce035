"""Workers that are asked to stop."""

import signal

import pytest

from backburner.domain.jobs.job import JobState

FOR_EVER = {"BACKBURNER_LEASE_SECONDS": "600"}


async def test_a_worker_that_stops_hands_its_job_back_at_once(fleet, client):
    stopping = fleet.worker(**FOR_EVER)
    [job] = await client.submit("work", {"seconds": 30})
    first = await client.seen(job, "job.started")
    await fleet.worker(**FOR_EVER).ready()
    stopping.signal(signal.SIGTERM)
    code = await stopping.ended()
    second = await client.seen(job, "job.started", after=first.n)

    assert 1 == code
    assert first.data["worker"] != second.data["worker"]
    assert (1, 1) == (first.data["attempt"], second.data["attempt"])
    assert ["job.queued", "job.started"] * 2 == await client.types(job)


@pytest.mark.executed
async def test_a_worker_that_is_killed_does_not(fleet, client):
    killed = fleet.worker(**FOR_EVER)
    [job] = await client.submit("work", {"seconds": 30})
    await client.seen(job, "job.started")
    await fleet.worker(**FOR_EVER).ready()
    killed.kill()
    [left] = await client.ended([job], within=1)

    assert JobState.RUNNING is left.state
    assert ["job.queued", "job.started"] == await client.types(job)


async def test_a_worker_that_stops_lets_its_job_finish_in_time(fleet, client):
    stopping = fleet.worker(**FOR_EVER, BACKBURNER_GRACE_SECONDS="30")
    [job] = await client.submit("work", {"seconds": 1})
    await client.seen(job, "job.started")
    stopping.signal(signal.SIGTERM)
    code = await stopping.ended()
    [ended] = await client.ended([job])

    assert 0 == code
    assert JobState.SUCCEEDED is ended.state
    assert [] == await client.store.workers()
    assert [] == await client.audit()
