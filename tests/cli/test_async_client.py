"""
The client that is awaited, against real servers that go away and come back.

The blocking client is generated from it, so `test_client.py` is about both.
"""

import asyncio
import signal

import pytest

from backburner.client import AsyncClient, NotFound, NotYet


@pytest.fixture
async def client(url):
    async with AsyncClient(url) as client:
        yield client


async def test_a_ticket_leads_to_the_result(client):
    ticket = await client.submit("demo.echo", {"a": 1})

    result = await ticket.result(timeout=60)

    assert {"a": 1} == result
    assert "succeeded" == ticket.state
    assert ticket.job == await (await client.ticket(ticket.id)).refresh()


async def test_a_ticket_before_its_time_says_so_and_is_cancelled(client):
    ticket = await client.submit("demo.echo", {}, run_at="2100-01-31T09:00:00Z")

    with pytest.raises(NotYet, match="is scheduled and continues"):
        await ticket.result(timeout=0)
    cancelled = await ticket.cancel()

    assert ("cancelled", cancelled) == (ticket.state, ticket.job)
    assert "job.cancelled" == [event["type"] async for event in ticket.stream()][-1]


async def test_a_stream_of_no_job_is_not_found(client):
    with pytest.raises(NotFound) as raised:
        await anext(client.events("job_none"))

    assert raised.value.request_id


async def test_many_wait_at_once(client):
    tickets = [await client.submit("demo.echo", {"n": n}) for n in range(20)]

    results = await asyncio.gather(*(ticket.result(30) for ticket in tickets))

    assert [{"n": n} for n in range(20)] == results


async def test_a_submit_whose_answer_is_lost_is_repeated_and_is_one_job(client, cutter):
    async with AsyncClient(cutter.url) as through:
        ticket = await through.submit("demo.echo", {}, metadata={"lost": "async"})

    found = [job["id"] async for job in client.jobs(metadata={"lost": "async"})]

    assert 2 == len(cutter.requests)
    assert [ticket.id] == found


async def test_a_stream_goes_on_when_its_server_was_stopped_and_started(
    serve, start, gate
):
    server = serve("--no-worker", "--app", "gated:app")
    start("worker", "--app", "gated:app")
    async with AsyncClient(server.url) as client:
        ticket = await client.submit("gated", {"a": 1})
        following = ticket.stream()
        seen = [await anext(following), await anext(following)]
        server.told(signal.SIGTERM).exit_code()
        serve("--no-worker", "--app", "gated:app", "--port", server.port)
        gate.reached()
        gate.opened()
        seen += [event async for event in following]
        result = await ticket.result()

    assert [1, 2, 3] == [event["n"] for event in seen]
    assert "job.succeeded" == seen[-1]["type"]
    assert {"a": 1} == result


async def test_a_reader_who_leaves_early_leaves_nothing_open(client):
    ticket = await client.submit("demo.sleep", {"seconds": 60})
    following = ticket.stream()
    first = await anext(following)

    await following.aclose()

    assert "job.queued" == first["type"]
    assert "cancelled" == (await ticket.cancel())["state"]
