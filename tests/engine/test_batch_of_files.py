"""Extract, chunk, embed: a batch of files, each a flow, on both databases."""

from contextlib import AsyncExitStack

import pytest

from backburner import (
    Backburner,
    Context,
    Flow,
    JobState,
    PermanentError,
    Settings,
    capability,
)
from backburner.domain.errors import IdempotencyConflict
from backburner.domain.groups.batch import BatchState
from backburner.domain.groups.flow import FlowState
from backburner.engine.submit.submission import LOCAL
from backburner.ports.store.events import Topic
from backburner.ports.store.flows import GroupFilter
from backburner.ports.store.maintenance import JobFilter
from backburner.testing.auditor import Ledger, audit

PATIENCE = 180.0
BAD = 7
"""The file that cannot be chunked before somebody has mended it."""


@capability("extract")
async def extract(_ctx: Context, value: int) -> int:
    return value


@capability("chunk")
async def chunk(ctx: Context, value: int) -> int:
    if value == -BAD and ctx.job.generation == 0:
        raise PermanentError("it has no end")
    return value


@capability("embed")
async def embed(_ctx: Context, value: int) -> int:
    return value


@capability("follow")
async def follow(_ctx: Context, value: dict[str, object]) -> object:
    return value["done"]


@pytest.fixture
async def backburner(store_url):
    """An instance with a worker in it, on either database."""
    settings = Settings(store=store_url, grace_seconds=0, poll_seconds=0.2, slots=500)
    async with AsyncExitStack() as stack:
        backburner = Backburner(settings, capabilities=[extract, chunk, embed, follow])
        await stack.enter_async_context(backburner)
        await backburner.start_worker()
        yield backburner


def a_file(number):
    flow = Flow()
    flow.add(extract >> chunk >> embed, number)
    return flow


async def told(backburner, ticket):
    topic = Topic(batch=(await ticket.batch()).seq)
    store = backburner.engine.store
    return (await store.stream(LOCAL, after=0, limit=9999, topic=topic)).events


async def followers(backburner):
    """Return what the jobs that followed the batch were told, in their order."""
    listed = await backburner.engine.jobs(JobFilter(capability="follow"))
    tickets = [await backburner.engine.wait(job.id, timeout=PATIENCE) for job in listed]
    return [job.output for job in sorted(tickets, key=lambda job: job.seq)]


async def breaches(backburner):
    return await backburner.engine.store.transact(
        lambda tx: audit(tx.connection, Ledger())
    )


@pytest.mark.parametrize(
    "files", [1_000, pytest.param(10_000, marks=pytest.mark.chaos)], ids=str
)
async def test_every_file_is_counted_and_the_batch_completes_once(backburner, files):
    ticket = await backburner.open_batch(
        flows=[a_file(number) for number in range(files)],
        completion={"capability": "follow"},
    )
    batch = await ticket.wait(PATIENCE)
    done = [event.data["done"] for event in (await told(backburner, ticket))[1:]]
    types = [event.type for event in await told(backburner, ticket)]

    assert BatchState.FINISHED is batch.state
    assert {
        "total": files,
        "done": files,
        "members": {"succeeded": files},
        "jobs": {"succeeded": 3 * files},
    } == await ticket.counts()
    assert 1 == types.count("batch.finished")
    assert "batch.finished" == types[-1]
    assert sorted(done) == done, "progress never goes back"
    assert [str(files)] == await followers(backburner)
    assert [] == await breaches(backburner)


async def test_a_step_retried_in_the_middle_of_a_batch_resumes_its_flow(backburner):
    numbers = [*range(BAD), -BAD, *range(BAD + 1, 30)]
    ticket = await backburner.open_batch(
        flows=[a_file(number) for number in numbers],
        completion={"capability": "follow"},
    )
    first = await ticket.wait(PATIENCE)
    counted = await ticket.counts()
    [failed] = await backburner.engine.jobs(JobFilter(state=JobState.FAILED))
    await backburner.retry(failed.id)
    opened = await ticket.batch()
    again = await ticket.wait(PATIENCE)
    steps = await backburner.engine.jobs(JobFilter(flow=failed.flow))
    [flow] = await backburner.engine.flows.list(
        GroupFilter(LOCAL), before=failed.flow + 1, limit=1
    )

    assert (BatchState.FINISHED, 0) == (first.state, first.generation)
    assert {"succeeded": 29, "failed": 1} == counted["members"]
    assert {"succeeded": 88, "failed": 1, "cancelled": 1} == counted["jobs"]
    assert 1 == opened.generation
    assert (BatchState.FINISHED, 1) == (again.state, again.generation)
    assert {"succeeded": 30} == (await ticket.counts())["members"]
    assert {"extract": 0, "chunk": 1, "embed": 1} == {
        job.step: job.generation for job in steps
    }, "what had succeeded was not run again"
    assert (FlowState.SUCCEEDED, 1) == (flow.state, flow.generation)
    types = [event.type for event in await told(backburner, ticket)]
    assert ["batch.finished", "batch.reopened", "batch.finished"] == [
        kind for kind in types if kind not in {"batch.opened", "batch.progress"}
    ]
    assert ["30", "30"] == await followers(backburner)
    assert [] == await breaches(backburner)


@capability("file-away", queue="filing", max_attempts=7)
async def file_away(_ctx: Context, value: str) -> str:
    return value


async def test_who_ends_a_batch_need_not_know_what_follows_it(store_url):
    settings = Settings(store=store_url, grace_seconds=0, poll_seconds=0.2)
    flow = Flow()
    flow.add(extract, 1)
    async with Backburner(settings, capabilities=[extract, file_away]) as knowing:
        opened = await knowing.open_batch(
            flows=[flow], completion={"capability": "file-away", "input": "it"}
        )
        batch_id = opened.id
    async with Backburner(settings, capabilities=[extract]) as other:
        await other.start_worker()
        batch = await other.engine.batches.wait(batch_id, timeout=PATIENCE)
        [made] = await other.engine.jobs(JobFilter(capability="file-away"))
        job = await other.engine.find(made.id)

    assert BatchState.FINISHED is batch.state
    assert (JobState.QUEUED, "filing", 7) == (job.state, job.queue, job.max_attempts)
    assert '"it"' == job.input


async def test_a_key_tells_batches_apart_whose_steps_run_otherwise(backburner):
    def a_flow(**options):
        flow = Flow()
        flow.add(extract, 1, **options)
        return flow

    key = {"idempotency_key": "monday"}
    first = await backburner.open_batch(flows=[a_flow()], **key)
    again = await backburner.open_batch(flows=[a_flow()], **key)

    with pytest.raises(IdempotencyConflict):
        await backburner.open_batch(flows=[a_flow(priority=1)], **key)
    assert first.id == again.id
