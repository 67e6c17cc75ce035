"""Events over a WebSocket."""

import asyncio

import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from backburner.domain.jobs.job import Owner
from backburner.engine.submit.submission import Options
from backburner.http import server as http
from backburner.http import wire

ECHO = ["job.queued", "job.started", "job.succeeded"]


def a_socket(server, **options):
    """Connect to a server's WebSocket."""
    return connect(server.url.replace("http", "ws") + "/v1/ws", proxy=None, **options)


async def say(socket, **message):
    """Send a message."""
    await socket.send(orjson.dumps(message).decode())


async def hear(socket, count=1):
    """Receive so many messages."""
    async with asyncio.timeout(60):
        return [orjson.loads(await socket.recv()) for _ in range(count)]


async def test_a_job_is_followed_from_its_beginning_to_its_end(server):
    job = await server.submit()
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", job_id=job["id"])
        granted, *told, ended = await hear(socket, 5)

    assert {"type": "subscribed", "job_id": job["id"], "after": 0} == granted
    assert ECHO == [event["type"] for event in told]
    assert [1, 2, 3] == [event["n"] for event in told]
    assert {"type": "ended", "job_id": job["id"]} == ended


async def test_a_reader_comes_back_with_its_last_number(server):
    job = await server.submit()
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", job_id=job["id"])
        await hear(socket, 2)
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", job_id=job["id"], after=1)
        told = await hear(socket, 3)

    assert ECHO[1:] == [event["type"] for event in told[1:]]


async def test_all_jobs_of_the_caller_are_followed_and_no_others(server):
    other = Options(owner=Owner("default", "2"))
    new = server.backburner.engine.prepare("demo.echo", {}, other)
    await server.backburner.engine.store_jobs([new])
    job = await server.submit()
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", after=0)
        _, *told = await hear(socket, 4)

    assert {job["id"]} == {event["job_id"] for event in told}
    assert ECHO == [event["type"] for event in told]


async def test_a_flow_and_a_batch_are_followed_to_their_ends(server):
    echo = {"capability": "demo.echo", "input": {}}
    asked = {"flows": [{"steps": [{"name": "a", **echo}]}]}
    batch = (await server.client.post("/v1/batches", json=asked)).json()
    (flow,) = batch["added"]["flows"]
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", flow_id=flow)
        granted, *steps, ended = await hear(socket, 7)
        last = steps[-1]["seq"]
        await say(socket, type="subscribe", batch_id=batch["id"], after=last)
        again, finished, over = await hear(socket, 3)

    assert {"type": "subscribed", "flow_id": flow, "after": 0} == granted
    assert ["flow.started", *ECHO, "flow.succeeded"] == [told["type"] for told in steps]
    assert {"type": "ended", "flow_id": flow} == ended
    assert {"type": "subscribed", "batch_id": batch["id"], "after": last} == again
    assert ("batch.finished", batch["id"]) == (finished["type"], finished["batch_id"])
    assert {"type": "ended", "batch_id": batch["id"]} == over


async def test_jobs_with_a_tag_are_followed_and_no_others(server):
    red, _ = await server.submit(tags=["red"]), await server.submit(tags=["blue"])
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", tag="red", after=0)
        granted, *told = await hear(socket, 4)

    assert {"type": "subscribed", "tag": "red", "after": 0} == granted
    assert {red["id"]} == {event["job_id"] for event in told}


async def test_what_is_unsubscribed_is_not_heard_any_more(server):
    held, job = await server.submit("test.wait"), await server.submit()
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", job_id=held["id"], after=2)
        await say(socket, type="unsubscribe", job_id=held["id"])
        await hear(socket, 2)
        server.release.set()
        await server.ended(held)
        await say(socket, type="subscribe", job_id=job["id"], after=2)
        told = await hear(socket, 3)

    assert [job["id"]] * 3 == [message["job_id"] for message in told]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "MALFORMED_BODY"),
        (b"{}", "INVALID_INPUT"),
        ('{"type": "dance"}', "INVALID_INPUT"),
        ('{"type": "subscribe", "after": -1}', "INVALID_INPUT"),
        ('{"type": "subscribe", "after": 9223372036854775808}', "INVALID_INPUT"),
        ('{"type": "subscribe", "more": 1}', "INVALID_INPUT"),
        ('{"type": "subscribe", "job_id": "x"}', "JOB_NOT_FOUND"),
        ('{"type": "subscribe", "flow_id": "x"}', "FLOW_NOT_FOUND"),
        ('{"type": "subscribe", "batch_id": "x"}', "BATCH_NOT_FOUND"),
        ('{"type": "subscribe", "flow_id": "x", "tag": "y"}', "INVALID_INPUT"),
        ('"' + "x" * 5_000 + '"', "INVALID_INPUT"),
    ],
)
async def test_a_message_that_cannot_be_taken_is_refused_and_no_more(
    server, message, code
):
    async with a_socket(server) as socket:
        await socket.send(message)
        await say(socket, type="unsubscribe")
        refused, answered = await hear(socket, 2)

    assert ("error", code) == (refused["type"], refused["problem"]["code"])
    assert "unsubscribed" == answered["type"]


async def test_a_page_of_another_origin_is_refused(server):
    with pytest.raises(InvalidStatus) as refused:
        await a_socket(server, origin="http://evil.example").__aenter__()

    assert 403 == refused.value.response.status_code
    assert "FOREIGN_ORIGIN" == orjson.loads(refused.value.response.body)["code"]


async def test_a_page_of_our_own_is_let_in(server):
    async with a_socket(server, origin=server.url) as socket:
        await say(socket, type="unsubscribe")

        assert ["unsubscribed"] == [told["type"] for told in await hear(socket)]


async def test_one_socket_too_many_is_refused(server):
    server.app.state.server_state.streams.limit = 1
    async with a_socket(server):
        with pytest.raises(InvalidStatus) as refused:
            await a_socket(server).__aenter__()

    assert 503 == refused.value.response.status_code


async def test_one_subscription_too_many_is_refused(server):
    server.app.state.server_state.streams.limit = 1
    async with a_socket(server) as socket:
        await say(socket, type="subscribe")
        told = await hear(socket, 2)

    assert "TOO_MANY_STREAMS" == told[1]["problem"]["code"]


async def test_a_client_that_leaves_frees_everything(server):
    job = await server.submit("test.wait")
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", job_id=job["id"])
        await hear(socket, 2)
    await server.until(lambda: server.app.state.server_state.streams.open == 0)

    assert {} == server.backburner.engine._watch._readers


async def test_a_fault_of_ours_closes_the_socket_without_its_words(server, monkeypatch):
    async def find(*_args):
        raise RuntimeError("secret words")

    monkeypatch.setattr(server.backburner.engine, "find", find)
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", job_id="x")
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()

    assert 1011 == closed.value.rcvd.code
    assert "secret" not in server.log.getvalue()
    assert '"error_type": "RuntimeError"' in server.log.getvalue()


async def test_a_fault_while_telling_closes_the_socket_too(server, monkeypatch):
    def event(_event):
        raise RuntimeError("secret words")

    monkeypatch.setattr(wire, "event", event)
    job = await server.submit()
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", job_id=job["id"])
        await hear(socket)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()

    assert 1011 == closed.value.rcvd.code
    assert "secret" not in server.log.getvalue()


async def test_a_server_that_stops_says_goodbye(server):
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", after=0)
        await hear(socket)
        http.stop(server.app)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()

    assert 1001 == closed.value.rcvd.code
