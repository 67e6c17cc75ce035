"""The completion of a job from Python: every way to submit one."""

import asyncio
from datetime import timedelta

import pytest
from pydantic import BaseModel

from backburner import Context, Flow, JobEnd, Owner, PermanentError, capability
from backburner.domain.jobs.completion import TAG
from backburner.domain.jobs.job import JobState
from backburner.engine.submit.submission import LOCAL
from backburner.ports.store.maintenance import JobFilter

ANN = Owner("acme", "ann")


class Add(BaseModel):
    a: int
    b: int = 0


class Sum(BaseModel):
    sum: int


class SumEnd(JobEnd):
    output: Sum | None = None


class Note(BaseModel):
    book: str = "usual"
    job: SumEnd


@capability("add")
async def add(_ctx: Context, value: Add) -> Sum:
    if value.a < 0:
        raise PermanentError("negative", code="NEGATIVE")
    return Sum(sum=value.a + value.b)


@capability("note", queue="after")
async def note(_ctx: Context, value: Note) -> Note:
    return value


@capability("hold")
async def hold(_ctx: Context, _value: int) -> None:
    await asyncio.Event().wait()


@capability("parent")
async def parent(ctx: Context, value: Add) -> str:
    return (await ctx.submit("add", value, completion=NOTE)).id


@capability("settle")
async def settle(ctx: Context, value: Add) -> None:
    ctx.at_settlement(lambda tx: tx.submit("add", value, completion=NOTE))


NOTE = {"capability": "note", "input": {"book": "red"}}
TWO = {"a": 1, "b": 1}


async def followed(backburner, job_id, owner=LOCAL):
    """Return the completions of a job when they have ended, oldest first."""
    where = JobFilter(owner=owner, tag=f"{TAG}{job_id}")
    listed = await backburner.engine.jobs(where, limit=9)
    return [
        await backburner.engine.wait(job.id, owner, timeout=30)
        for job in reversed(listed)
    ]


async def told(backburner, job_id, owner=LOCAL):
    """Return what the handlers of a job's completions were given."""
    found = await followed(backburner, job_id, owner)
    assert {JobState.SUCCEEDED} == {job.state for job in found}
    return [Note.model_validate_json(job.output) for job in found]


async def by_submit(backburner):
    return (await backburner.submit(add, Add(**TWO), completion=NOTE)).id


async def by_object(backburner):
    named = {"capability": note, "input": {"book": "red"}}
    return (await backburner.submit(add, Add(**TWO), completion=named)).id


async def by_submit_many(backburner):
    [ticket] = await backburner.submit_many(add, [Add(**TWO)], completion=NOTE)
    return ticket.id


async def by_transaction(backburner):
    answer = await backburner.transact(
        lambda tx: tx.submit("add", TWO, completion=NOTE)
    )
    return answer.id


async def by_handler(backburner):
    return await (await backburner.submit(parent, Add(**TWO))).result()


async def by_settlement(backburner):
    ticket = await backburner.submit(settle, Add(**TWO))
    await ticket.wait(timeout=30)
    where = JobFilter(owner=LOCAL, capability="add")
    [child] = await backburner.engine.jobs(where, limit=9)
    return child.id


async def by_flow(backburner):
    flow = Flow()
    flow.add(add, Add(**TWO), name="one", completion=NOTE)
    ticket = await backburner.submit_flow(flow)
    steps = await backburner.engine.flows.steps(
        await backburner.engine.flows.find(ticket.id)
    )
    return steps[0].job.id


@pytest.mark.parametrize(
    "submit",
    [
        by_submit,
        by_object,
        by_submit_many,
        by_transaction,
        by_handler,
        by_settlement,
        by_flow,
    ],
)
@pytest.mark.one_store
async def test_every_way_to_submit_a_job_takes_a_completion(working, submit):
    backburner = await working(add, note, parent, settle, poll_seconds=60)
    job_id = await submit(backburner)
    await backburner.engine.wait(job_id, timeout=30)

    [end] = await told(backburner, job_id)
    assert ("red", job_id, "add", JobState.SUCCEEDED, 0, Sum(sum=2), None) == (
        end.book,
        end.job.id,
        end.job.capability,
        end.job.state,
        end.job.generation,
        end.job.output,
        end.job.error,
    )


async def test_a_completion_starts_at_once_and_is_its_jobs_owners(working, ended):
    backburner = await working(add, note, poll_seconds=60)
    ticket = await backburner.submit(
        add, Add(a=-1), owner=ANN, request_id="r1", completion={"capability": "note"}
    )
    await ended(ticket)

    [job] = await followed(backburner, ticket.id, ANN)
    [end] = await told(backburner, ticket.id, ANN)
    assert (ANN, "r1", "usual") == (job.owner, job.request_id, end.book)
    assert (JobState.FAILED, "NEGATIVE", None) == (
        end.job.state,
        end.job.error.code,
        end.job.output,
    )


async def test_a_retried_job_is_completed_again(working, ended):
    backburner = await working(add, note)
    ticket = await backburner.submit(add, Add(a=-1), completion=NOTE)
    await ended(ticket)
    await backburner.retry(ticket.id)
    await ended(ticket)

    ends = [end.job for end in await told(backburner, ticket.id)]
    assert [(JobState.FAILED, 0), (JobState.FAILED, 1)] == [
        (end.state, end.generation) for end in ends
    ]


async def test_a_cancelled_job_is_completed_whether_it_runs_or_waits(working, told):
    backburner = await working(hold, note)
    running = await backburner.submit(hold, 1, completion=NOTE)
    waiting = await backburner.submit(
        hold, 1, delay=timedelta(hours=1), completion=NOTE
    )
    await told(running, "job.started")
    for ticket in (running, waiting):
        await backburner.cancel(ticket.id)

        [done] = await followed(backburner, ticket.id)
        end = Note.model_validate_json(done.output).job
        assert (JobState.CANCELLED, "CANCELLED") == (end.state, end.error.code)
