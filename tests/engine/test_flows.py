"""Flows and batches as a program writes them, on both databases."""

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from pydantic import BaseModel

from backburner import (
    Backburner,
    Context,
    Flow,
    PermanentError,
    RetryPolicy,
    TransientError,
    capability,
)
from backburner.domain.errors import InvalidInput, UnknownCapability
from backburner.domain.jobs.job import JobState
from backburner.engine.groups import batches
from backburner.engine.submit.submission import LOCAL
from backburner.ports.store.flows import GroupFilter
from backburner.ports.store.maintenance import JobFilter
from backburner.settings import Settings
from backburner.testing.broker.acts import pause

PATIENCE = 180.0


class Url(BaseModel):
    url: str


class Text(BaseModel):
    text: str


class Parts(BaseModel):
    words: list[str]


@capability("extract")
async def extract(_ctx: Context, value: Url) -> Text:
    return Text(text=f"what {value.url} says")


@capability("split")
async def split(_ctx: Context, value: Text) -> Parts:
    return Parts(words=value.text.split())


@capability("shout")
async def shout(_ctx: Context, value: str) -> str:
    return value.upper()


@capability("fan-out")
async def fan_out(ctx: Context, value: Parts) -> int:
    ctx.flow.map(shout, value.words, before=["collect"])
    return len(value.words)


@capability("collect")
async def collect(ctx: Context, _value: None) -> list[str]:
    return sorted(str(need.output) for need in ctx.needs.values())


@capability("look-back")
async def look_back(ctx: Context, _value: None) -> dict[str, str]:
    return {
        name: str(need.state if need.error is None else need.error["code"])
        for name, need in ctx.needs.items()
    }


_passing: set[str] = set()


@capability("fail-once", max_attempts=1)
async def fail_once(ctx: Context, value: int) -> int:
    if ctx.job.id not in _passing:
        _passing.add(ctx.job.id)
        raise PermanentError("not the first time")
    return value


@capability("leave-word", retry=RetryPolicy.listed(timedelta(milliseconds=1)))
async def leave_word(ctx: Context, how: str) -> str:
    ctx.flow.add(look_back, None, after=[ctx.anyway], name=f"anyway {ctx.job.attempt}")
    ctx.flow.add(shout, after=[ctx.job.step], name="if well")
    ctx.flow.add(shout, "b", after=[ctx.anyway, "if well"], name="after that")
    if how == "well":
        return how
    raise TransientError("no")


@capability("leave-much", max_attempts=1)
async def leave_much(ctx: Context, large: str) -> None:
    """Fail, with a step to follow whose input goes to the blob store."""
    ctx.flow.add(measure, large * 2, after=[ctx.anyway], name="anyway")
    raise PermanentError("no")


@capability("measure")
async def measure(_ctx: Context, value: str) -> int:
    return len(value)


@capability("leave-twice", max_attempts=1)
async def leave_twice(ctx: Context, _value: None) -> None:
    """Fail, with a step to follow whose name is taken."""
    ctx.flow.add(shout, "b", after=[ctx.anyway], name="taken")
    raise PermanentError("it was tried")


ADDED = (leave_much, measure, leave_twice)
ALL = (
    *ADDED,
    extract,
    split,
    shout,
    fan_out,
    collect,
    look_back,
    fail_once,
    leave_word,
)


@pytest.fixture
def blobs(tmp_path):
    return tmp_path / "blobs"


@pytest.fixture
async def backburner(store_url, blobs):
    """An instance with a worker in it, on either database."""
    settings = Settings(
        store=store_url, blobs=f"file://{blobs}", grace_seconds=0, poll_seconds=0.2
    )
    async with AsyncExitStack() as stack:
        backburner = Backburner(settings, capabilities=ALL)
        await stack.enter_async_context(backburner)
        await backburner.start_worker()
        yield backburner


async def states(ticket):
    return {name: job.state for name, job in (await ticket.steps()).items()}


async def test_a_chain_reads_in_the_order_in_which_it_runs(backburner):
    ticket = await backburner.submit_flow(extract >> split, Url(url="it"))

    assert {
        "extract": {"text": "what it says"},
        "split": {"words": ["what", "it", "says"]},
    } == await ticket.results(PATIENCE)


async def test_steps_that_are_added_on_the_way_are_waited_for(backburner):
    flow = Flow()
    split_up = flow.add(extract >> split >> fan_out, Url(url="it"))
    flow.add(collect, None, after=[split_up])
    ticket = await backburner.submit_flow(flow)

    results = await ticket.results(PATIENCE)

    assert ["3", "IT", "SAYS", "WHAT"] == results["collect"]
    assert {"fan-out/shout", "fan-out/shout-2", "fan-out/shout-3"} < results.keys()


async def test_a_failure_is_seen_by_who_goes_on_and_a_retry_by_the_rest(backburner):
    flow = Flow()
    bad = flow.add(fail_once, 1)
    flow.add(look_back, None, after=[bad.anyway])
    flow.add(collect, None, after=[bad])
    ticket = await backburner.submit_flow(flow)

    failed = await ticket.wait(PATIENCE)
    before = await ticket.results()
    steps = await ticket.steps()
    await ticket.retry()
    again = await ticket.wait(PATIENCE)
    after = await ticket.results()

    assert ("failed", 0) == (failed.state, failed.generation)
    assert {"look-back": {"fail-once": "PERMANENT"}} == before
    assert "DEPENDENCY_FAILED" == steps["collect"].error.code
    assert ("succeeded", 1) == (again.state, again.generation)
    assert (1, ["1"]) == (after["fail-once"], after["collect"])
    assert before["look-back"] == after["look-back"], "it is not run again"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fail-once", "step 'fail-once' failed: PERMANENT, not the first time"),
        ("collect", "step 'collect' cancelled: DEPENDENCY_FAILED, "),
        ("nothing", "^'nothing'$"),
    ],
)
async def test_the_result_of_a_step_that_has_none_says_why(backburner, name, told):
    flow = Flow()
    flow.add(collect, None, after=[flow.add(fail_once, 1)])
    results = await (await backburner.submit_flow(flow)).results(PATIENCE)

    with pytest.raises(KeyError, match=told):
        results[name]

    assert name not in results
    assert results.get(name) is None


async def test_what_a_step_adds_to_follow_it_anyway_is_there_if_it_fails(backburner):
    bad, good = Flow(), Flow()
    bad.add(leave_word, "badly", name="word")
    good.add(leave_word, "well", name="word")
    failed, done = [await backburner.submit_flow(flow) for flow in (bad, good)]

    ended = [(await ticket.wait(PATIENCE)).state for ticket in (failed, done)]

    assert {"anyway 2": {"word": "TRANSIENT"}} == await failed.results()
    assert {"word", "anyway 2"} == (await failed.steps()).keys(), "and nothing else"
    assert {"word", "anyway 1", "if well", "after that"} == (await done.steps()).keys()
    assert ["succeeded", "succeeded"] == ended, "a failure that somebody expects"


async def test_a_failure_waits_until_what_follows_it_anyway_can_be_stored(
    backburner, blobs, until
):
    flow = Flow()
    flow.add(leave_much, "x" * 50_000, name="much")
    flow.add(look_back, None, name="other")
    away = blobs.with_name("away")
    with structlog.testing.capture_logs() as lines:
        if blobs.exists():
            blobs.rename(away)
        blobs.touch()  # a file: no folder can be made in it
        ticket = await backburner.submit_flow(flow)
        await until(lambda: any("not stored" in line["event"] for line in lines))
        async with asyncio.timeout(PATIENCE):
            while "succeeded" != (before := await states(ticket))["other"]:
                await pause()
        blobs.unlink()
        if away.exists():
            away.rename(blobs)

    results = await ticket.results(PATIENCE)
    steps = await ticket.steps()

    assert {"much": "running", "other": "succeeded"} == before
    assert 100_000 == results["anyway"]
    assert ("failed", "PERMANENT") == (steps["much"].state, steps["much"].error.code)


async def test_why_what_follows_a_failure_anyway_is_not_stored_is_told(backburner):
    flow = Flow()
    flow.add(leave_twice, None, name="bad")
    flow.add(shout, "a", name="taken")
    with structlog.testing.capture_logs() as lines:
        ticket = await backburner.submit_flow(flow)
        ended = await ticket.wait(PATIENCE)
    steps = await ticket.steps()
    job = steps["bad"]

    assert ("failed", {"bad", "taken"}) == (ended.state, steps.keys())
    assert "PERMANENT" == job.error.code
    assert "it was tried; the steps it added were not stored" in job.error.message
    assert "the flow already has a step of this name" in job.error.message
    assert [(job.id, "InvalidInput")] == [
        (line["job_id"], line["error_type"])
        for line in lines
        if line["event"] == "steps not stored"
    ]


async def test_the_job_of_a_step_that_is_fed_by_others_is_plain_json(backburner):
    ticket = await backburner.submit_flow(extract >> split, Url(url="it"))
    await ticket.wait(PATIENCE)

    inputs = [json.loads(job.input) for job in (await ticket.steps()).values()]

    assert [{"url": "it"}, None] == inputs


async def test_a_batch_ends_with_the_cancel_of_its_last_flow(store_url, monkeypatch):
    monkeypatch.setattr(batches, "NET_SECONDS", 3600.0)
    settings = Settings(store=store_url, grace_seconds=0)
    async with Backburner(settings, capabilities=ALL) as backburner:
        flow = Flow()
        flow.add(shout, "a", delay=timedelta(hours=1))
        batch = await backburner.open_batch(flows=[flow])
        other = await backburner.open_batch([(shout, "b")])
        (job,) = await backburner.engine.jobs(JobFilter(state=JobState.QUEUED))
        (member,) = await backburner.engine.flows.list(GroupFilter(LOCAL))
        await backburner.cancel(job.id)
        looked = await other.wait(PATIENCE)

        await backburner.engine.flows.cancel(member.id)
        ended = await batch.wait(PATIENCE)

    assert ("finished", "finished") == (looked.state, ended.state)


async def test_a_flow_that_waits_is_cancelled_or_expires_as_a_whole(backburner):
    later = {"run_at": datetime(2100, 1, 1, tzinfo=UTC)}
    over = datetime(2020, 1, 1, tzinfo=UTC)
    flows = [Flow(), Flow()]
    for flow in flows:
        flow.add(shout, after=[flow.add(shout, "a", **later)])
    cancelled = await backburner.submit_flow(flows[0])
    expired = await backburner.submit_flow(flows[1], deadline=over)

    assert "cancelled" == (await cancelled.cancel()).state
    assert "failed" == (await expired.wait(PATIENCE)).state
    assert {"cancelled"} == {job.state for job in (await cancelled.steps()).values()}


async def test_many_wait_for_one_end_and_leave_nothing_behind(backburner):
    flow = Flow()
    flow.add(shout, "a", run_at=datetime(2100, 1, 1, tzinfo=UTC))
    ticket = await backburner.submit_flow(flow)
    batch = await backburner.open_batch(expected=1)

    early = [await ticket.wait(0), await ticket.wait(0.05)]
    waiting = [asyncio.create_task(ticket.wait(PATIENCE)) for _ in range(20)]
    waiting += [asyncio.create_task(batch.wait(PATIENCE)) for _ in range(20)]
    while len(backburner.engine._watch._awaited) < 2:
        await pause()
    waiting[0].cancel()
    await ticket.cancel()
    await batch.cancel()
    ended = await asyncio.gather(*waiting[1:])

    assert ["running", "running"] == [flow.state for flow in early]
    assert {"cancelled": 19, "finished": 20} == Counter(group.state for group in ended)
    assert {} == backburner.engine._watch._awaited


async def test_what_happens_to_a_flow_is_told_to_its_end(backburner):
    ticket = await backburner.submit_flow(extract >> split, Url(url="it"))

    told = [event async for event in ticket.events()]

    assert ["flow.started", "flow.succeeded"] == [told[0].type, told[-1].type]
    assert sorted({event.seq for event in told}) == [event.seq for event in told]
    assert 2 == sum(event.type == "job.succeeded" for event in told)


async def test_a_batch_is_filled_ends_and_ends_again(backburner):
    flow = Flow()
    flow.add(fail_once, 2)
    batch = await backburner.open_batch(
        [(shout, "a")],
        [flow],
        expected=3,
        completion={"capability": "shout", "input": "over"},
    )
    await batch.add([(shout, "b")])
    first = await batch.wait(PATIENCE)
    counts = await batch.counts()
    retried = await batch.retry()
    second = await batch.wait(PATIENCE)
    told = [event.type async for event in batch.events()]

    assert ("finished", "finished") == (first.state, second.state)
    assert {"succeeded": 2, "failed": 1} == counts["members"]
    assert 1 == retried
    assert (0, 1) == (first.generation, second.generation)
    assert {"succeeded": 3} == (await batch.counts())["members"]
    assert 2 == told.count("batch.finished")


async def test_what_cannot_be_is_refused_before_anything_is_stored(backburner):
    circle, misfit, unknown = Flow(), Flow(), Flow()
    circle.add(shout, "a", after=["two"], name="one")
    circle.add(shout, "b", after=["one"], name="two")
    misfit.add(shout, after=[misfit.add(extract, Url(url="it"))])
    unknown.add("shoot", "a")

    for flow, error, told in (
        (circle, InvalidInput, "a cycle"),
        (misfit, InvalidInput, "it is of type object, not string"),
        (unknown, UnknownCapability, "did you mean 'shout'"),
    ):
        with pytest.raises(error, match=told):
            await backburner.submit_flow(flow)

    assert 0 == await backburner.engine.store.latest()


async def test_one_key_is_one_flow_or_batch(backburner):
    def flow():
        return extract >> split

    flows = [
        await backburner.submit_flow(flow(), Url(url="it"), idempotency_key="k")
        for _ in range(2)
    ]
    batches = [
        await backburner.open_batch([(shout, "a")], idempotency_key="k")
        for _ in range(2)
    ]

    assert flows[0].id == flows[1].id
    assert (False, True) == (flows[0].replayed, flows[1].replayed)
    assert batches[0].id == batches[1].id
