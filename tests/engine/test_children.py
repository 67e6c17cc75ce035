"""Jobs made by jobs. Nobody polls here: only a notification can start them."""

import asyncio

from backburner import Context, capability
from backburner.domain.jobs.job import JobState, Owner
from backburner.engine.engine import as_value

ANN = Owner("acme", "ann")


@capability("leaf")
async def leaf(_ctx: Context, value: int) -> int:
    return value


@capability("parent")
async def parent(ctx: Context, value: int) -> str:
    return (await ctx.submit("leaf", value)).id


@capability("countdown")
async def countdown(ctx: Context, value: int) -> int:
    if value > 0:
        ctx.at_settlement(lambda tx: _next(tx, value - 1))
    return value


def _next(tx, value):
    tx.submit("countdown", value)


async def ends(stream, count):
    """Return the first jobs that succeed, in order."""
    seen = []
    async with asyncio.timeout(60):
        async for event in stream:
            seen += [event.subject] if event.type == "job.succeeded" else []
            if len(seen) == count:
                return seen
    return seen


async def test_a_job_submitted_by_a_handler_is_its_owners_and_starts_at_once(
    working, ended
):
    backburner = await working(leaf, parent, poll_seconds=60)

    first = await ended(await backburner.submit(parent, 7, owner=ANN, request_id="r1"))
    child = await backburner.engine.wait(as_value(first.output), ANN, timeout=60)

    assert (JobState.SUCCEEDED, "7") == (child.state, child.output)
    assert (ANN, "r1") == (child.owner, child.request_id)


async def test_jobs_submitted_at_a_settlement_are_its_owners_and_start_at_once(
    working,
):
    backburner = await working(countdown, poll_seconds=60)
    await backburner.submit(countdown, 3, owner=ANN, request_id="r1")

    succeeded = await ends(backburner.engine.stream(ANN), 4)

    jobs = await backburner.engine.store.find(succeeded)
    assert ["3", "2", "1", "0"] == [job.output for job in jobs]
    assert [(ANN, "r1")] * 4 == [(job.owner, job.request_id) for job in jobs]
