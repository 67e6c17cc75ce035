"""Workers of two releases that share a queue."""

import asyncio
from datetime import timedelta

import pytest
import structlog

from backburner import Context, capability
from backburner.domain.jobs.job import JobState
from backburner.engine.run import unknown_jobs


@capability("old")
async def old(_ctx: Context, value: int) -> int:
    return value


@capability("new")
async def new(_ctx: Context, value: int) -> int:
    return value


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(unknown_jobs, "SHORTEST", timedelta(seconds=0.1))


async def waits(ticket, count):
    """Return the first waits that a job was told to take, in seconds."""
    told = []
    async with asyncio.timeout(60):
        async for event in ticket.events():
            if event.type == "job.throttled":
                told.append(event.data["error"]["retry_after"])
            if len(told) == count:
                break
    return told


async def test_a_job_that_one_worker_does_not_know_is_run_by_one_that_does(
    working, submitting, ended
):
    # However often it meets the one that does not.
    await working(old, slots=1)
    newer = await submitting(new, old)
    tickets = await newer.submit_many(new, range(12))
    first = await waits(tickets[0], 1)
    await newer.start_worker()

    jobs = [await ended(ticket) for ticket in tickets]

    assert [0.1] == first
    assert [(JobState.SUCCEEDED, 1)] * 12 == [(job.state, job.attempt) for job in jobs]


async def test_a_job_that_nobody_knows_is_offered_again_soon_and_at_no_cost(
    working, submitting
):
    await working(old)
    newer = await submitting(new, old)
    ticket = await newer.submit(new, 1)

    told = await waits(ticket, 4)
    job = await ticket.job()

    assert [0.1] * 4 == told
    assert (JobState.SCHEDULED, 0) == (job.state, job.attempt)


async def test_jobs_that_nobody_knows_become_due_one_by_one(
    working, submitting, monkeypatch
):
    monkeypatch.setattr(unknown_jobs, "SPACING", timedelta(minutes=5))
    monkeypatch.setattr(unknown_jobs, "LONGEST", timedelta(minutes=30))
    await working(old)
    newer = await submitting(new, old)
    tickets = await newer.submit_many(new, range(4))

    told = sorted([(await waits(ticket, 1))[0] for ticket in tickets])

    assert [5, 10, 15, 20] == [round(wait / 60) for wait in told]


async def test_a_worker_logs_a_capability_that_it_does_not_have_once(
    working, submitting
):
    await working(old)
    newer = await submitting(new, old)
    with structlog.testing.capture_logs() as lines:
        tickets = await newer.submit_many(new, range(12))
        for ticket in tickets:
            await waits(ticket, 2)

    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert ["new"] == [line["capability"] for line in warnings]
    assert "its own queue" in warnings[0]["event"]
