"""Flows and batches through both clients, against a real server."""

from datetime import UTC, datetime

import pytest

from backburner.client import (
    AsyncClient,
    Client,
    ClientError,
    Conflict,
    NewFlow,
    NewJob,
    NewStep,
    NotFound,
    NotYet,
)

FUTURE = datetime(2100, 1, 31, 9, tzinfo=UTC)
FIRST = NewStep(name="first", capability="demo.echo", input={"a": 1})
SECOND = NewStep(name="second", capability="demo.echo", needs=["first"])
LATE = NewStep(name="late", capability="demo.echo", input={}, run_at=FUTURE)
BAD = NewStep(name="bad", capability="demo.fail", input={"error": "permanent"})
AFTER = NewStep(
    name="after",
    capability="demo.echo",
    input={},
    needs=[{"step": "bad", "otherwise": "continue"}],
)
NEXT = NewStep(name="next", capability="demo.echo", needs=["bad"])
ECHO = NewJob(capability="demo.echo", input={})


@pytest.fixture
async def awaited(url):
    async with AsyncClient(url) as client:
        yield client


def test_a_flow_leads_to_its_results(client):
    flow = client.submit_flow([SECOND, FIRST], tags=["a flow"])
    told = [event["type"] for event in flow.stream()]

    assert {"first": {"a": 1}, "second": {"a": 1}} == flow.results(timeout=60)
    assert ["flow.started", "flow.succeeded"] == [told[0], told[-1]]
    assert "succeeded" == flow.wait()["state"] == flow.state
    assert "succeeded" == flow.steps["second"]["state"]
    assert flow.flow == client.flow(flow.id).refresh()
    assert [flow.id] == [found["id"] for found in client.flows(tag="a flow")]


async def test_a_flow_leads_to_its_results_when_awaited(awaited):
    flow = await awaited.submit_flow([SECOND, FIRST], tags=["awaited"])
    told = [event["type"] async for event in flow.stream()]

    assert {"first": {"a": 1}, "second": {"a": 1}} == await flow.results(timeout=60)
    assert ["flow.started", "flow.succeeded"] == [told[0], told[-1]]
    assert "succeeded" == (await flow.wait())["state"] == flow.state
    assert flow.flow == await (await awaited.flow(flow.id)).refresh()
    assert [flow.id] == [found["id"] async for found in awaited.flows(tag="awaited")]


def test_a_failed_flow_shows_what_succeeded_and_is_retried(client):
    flow = client.submit_flow([BAD, NEXT, AFTER])
    results = flow.results()
    failed = flow.flow
    flow.retry()
    again = flow.wait()

    assert ({"after": {}}, "failed") == (results, failed["state"])
    assert ("succeeded", 1) == (again["state"], again["generation"])
    with pytest.raises(Conflict):
        flow.retry()


def test_a_flow_before_its_time_says_so_and_is_cancelled(client):
    flow = client.submit_flow([LATE])

    with pytest.raises(NotYet, match=r"^flow flow_.* is running and continues"):
        flow.results(timeout=0)

    assert "cancelled" == flow.cancel()["state"] == flow.state


def test_a_flow_that_cannot_be_is_told_by_its_step(client):
    with pytest.raises(ClientError, match=r"steps\.second: needs 'first'") as refused:
        client.submit_flow([SECOND])

    assert ("INVALID_INPUT", 422) == (refused.value.code, refused.value.status)


def test_a_flow_whose_answer_is_lost_is_one_flow(client, cutter):
    with Client(cutter.url) as through:
        flow = through.submit_flow([FIRST], tags=["lost flow"])

    assert 2 == len(cutter.requests)
    assert [flow.id] == [found["id"] for found in client.flows(tag="lost flow")]


def test_a_batch_is_filled_counted_and_followed(client):
    batch = client.open_batch([ECHO], expected=3, tags=["a batch"])
    first = batch.batch["added"]
    added = batch.add([ECHO], [NewFlow(steps=[FIRST, SECOND])])
    ended = batch.wait(timeout=60)
    told = [event["type"] for event in batch.stream()]

    assert ([1, 0], [1, 1]) == (
        [len(first["jobs"]), len(first["flows"])],
        [len(added["added"]["jobs"]), len(added["added"]["flows"])],
    )
    assert ("finished", {"succeeded": 3}) == (
        ended["state"],
        ended["counts"]["members"],
    )
    assert 4 == batch.counts["jobs"]["succeeded"]
    assert ["batch.opened", "batch.finished"] == [told[0], told[-1]]
    assert batch.batch == client.batch(batch.id).refresh()
    assert [batch.id] == [found["id"] for found in client.batches(tag="a batch")]
    assert 4 == len(list(client.jobs(batch=batch.id)))
    with pytest.raises(Conflict, match="expects 3 members"):
        batch.add([ECHO])


def test_what_failed_of_a_batch_is_retried_and_the_rest_cancelled(client):
    flow = NewFlow(steps=[BAD])
    batch = client.open_batch([ECHO], [flow], completion={"capability": "demo.echo"})
    failed = batch.wait()
    retried = batch.retry()
    again = batch.wait()
    waiting = client.open_batch([NewJob(**ECHO, run_at=FUTURE)])
    waiting.cancel()

    assert {"succeeded": 1, "failed": 1} == failed["counts"]["members"]
    assert 1 == retried["retried"]
    assert {"succeeded": 2} == again["counts"]["members"]
    assert 2 == len(list(client.jobs(tag=f"batch:{batch.id}")))
    assert {"cancelled": 1} == waiting.wait()["counts"]["members"]


def test_a_filling_whose_answer_is_lost_is_there_once(client, cutter):
    batch = client.open_batch(expected=2)
    with Client(cutter.url) as through:
        through.fill_batch(batch.id, [ECHO, ECHO])

    assert 2 == len(cutter.requests)
    assert 2 == batch.wait()["counts"]["total"]


def test_the_stream_of_everything_is_narrowed(client):
    flow = client.submit_flow([FIRST])
    ticket = client.submit("demo.echo", {}, tags=["narrow"])

    of_flow = next(client.all_events(after=0, flow=flow.id))
    of_tag = next(client.all_events(after=0, tag="narrow"))

    assert ("flow.started", flow.id) == (of_flow["type"], of_flow["flow_id"])
    assert ticket.id == of_tag["job_id"]


async def test_what_is_not_there_is_not_found(client, awaited):
    with pytest.raises(NotFound):
        client.flow("flow_none")
    with pytest.raises(NotFound):
        client.batch("batch_none")
    with pytest.raises(NotFound):
        await anext(awaited.flow_events("flow_none"))
    with pytest.raises(NotFound):
        next(client.all_events(batch="batch_none"))
