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
from backburner.domain.batch import BatchState
from backburner.domain.errors import IdempotencyConflict
from backburner.domain.flow import FlowState
from backburner.engine.submission import LOCAL
from backburner.ports.store import GroupFilter, JobFilter, Topic
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
async def house(store_url):
    """A house with a worker in it, on either database."""
    settings = Settings(store=store_url, grace_seconds=0, poll_seconds=0.2, slots=500)
    async with AsyncExitStack() as stack:
        house = Backburner(settings, capabilities=[extract, chunk, embed, follow])
        await stack.enter_async_context(house)
        await house.start_worker()
        yield house


def a_file(number):
    flow = Flow()
    flow.add(extract >> chunk >> embed, number)
    return flow


async def told(house, ticket):
    topic = Topic(batch=(await ticket.batch()).seq)
    store = house.engine.store
    return (await store.stream(LOCAL, after=0, limit=9999, topic=topic)).events


async def followers(house):
    """Return what the jobs that followed the batch were told, in their order."""
    listed = await house.engine.jobs(JobFilter(capability="follow"))
    tickets = [await house.engine.wait(job.id, timeout=PATIENCE) for job in listed]
    return [job.output for job in sorted(tickets, key=lambda job: job.seq)]


async def breaches(house):
    return await house.engine.store.transact(lambda tx: audit(tx.connection, Ledger()))


@pytest.mark.parametrize(
    "files", [1_000, pytest.param(10_000, marks=pytest.mark.chaos)], ids=str
)
async def test_every_file_is_counted_and_the_batch_completes_once(house, files):
    ticket = await house.open_batch(
        flows=[a_file(number) for number in range(files)],
        completion={"capability": "follow"},
    )
    batch = await ticket.wait(PATIENCE)
    done = [event.data["done"] for event in (await told(house, ticket))[1:]]
    types = [event.type for event in await told(house, ticket)]

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
    assert [str(files)] == await followers(house)
    assert [] == await breaches(house)


async def test_a_step_retried_in_the_middle_of_a_batch_resumes_its_flow(house):
    numbers = [*range(BAD), -BAD, *range(BAD + 1, 30)]
    ticket = await house.open_batch(
        flows=[a_file(number) for number in numbers],
        completion={"capability": "follow"},
    )
    first = await ticket.wait(PATIENCE)
    counted = await ticket.counts()
    [failed] = await house.engine.jobs(JobFilter(state=JobState.FAILED))
    await house.retry(failed.id)
    opened = await ticket.batch()
    again = await ticket.wait(PATIENCE)
    steps = await house.engine.jobs(JobFilter(flow=failed.flow))
    [flow] = await house.engine.flows.list(
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
    types = [event.type for event in await told(house, ticket)]
    assert ["batch.finished", "batch.reopened", "batch.finished"] == [
        kind for kind in types if kind not in {"batch.opened", "batch.progress"}
    ]
    assert ["30", "30"] == await followers(house)
    assert [] == await breaches(house)


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


async def test_a_key_tells_batches_apart_whose_steps_run_otherwise(house):
    def a_flow(**options):
        flow = Flow()
        flow.add(extract, 1, **options)
        return flow

    key = {"idempotency_key": "monday"}
    first = await house.open_batch(flows=[a_flow()], **key)
    again = await house.open_batch(flows=[a_flow()], **key)

    with pytest.raises(IdempotencyConflict):
        await house.open_batch(flows=[a_flow(priority=1)], **key)
    assert first.id == again.id
