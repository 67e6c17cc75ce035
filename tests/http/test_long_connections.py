"""Streams and sockets end with their key, are shared fairly and count as requests."""

import asyncio

import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from backburner.engine.access import keys
from backburner.http import state
from backburner.http.problems import TooManyStreams
from backburner.http.state import Streams


@pytest.fixture
async def keyed(serve, monkeypatch):
    """A server that asks often whether a key is good."""
    monkeypatch.setattr(state, "RECHECK_SECONDS", 0.05)
    monkeypatch.setattr(keys, "FRESH_MS", 50)
    return await serve(keyed=True, works=False)


def a_socket(server, key):
    url = server.url.replace("http", "ws") + "/v1/ws"
    return connect(url, proxy=None, additional_headers=server.shown(key))


async def revoke(server, key):
    """Revoke a key as another process would: this one is not told."""
    key_id = key.split("_")[2]
    before = server.backburner.keys._known.copy()
    await server.backburner.keys.revoke(key_id, keys.Actor("tests", "default"))
    server.backburner.keys._known.update(before)


async def expire(server, _key):
    """Wait until the key has expired by itself."""


@pytest.fixture(params=[revoke, expire])
async def ending(request, keyed):
    """A key, and how it ends."""
    soon = keyed.backburner.engine.now() + 1_500
    fields = {"expires_at": soon} if request.param is expire else {}
    return await keyed.key("default", "jobs:read", "jobs:write", **fields), (
        lambda key: request.param(keyed, key)
    )


async def test_an_event_stream_ends_with_its_key(keyed, ending):
    key, end = ending
    async with (
        asyncio.timeout(60),
        keyed.client.stream("GET", "/v1/events", headers=keyed.shown(key)) as response,
    ):
        lines = response.aiter_lines()
        await anext(lines)
        await end(key)
        rest = [line async for line in lines]
    again = await keyed.client.get("/v1/events", headers=keyed.shown(key))

    assert 200 == response.status_code
    assert not [line for line in rest if line.startswith("data")]
    assert 401 == again.status_code


async def test_a_socket_ends_with_its_key(keyed, ending):
    key, end = ending
    async with asyncio.timeout(60), a_socket(keyed, key) as socket:
        await socket.send(orjson.dumps({"type": "subscribe"}).decode())
        await socket.recv()
        await end(key)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()

    assert 1008 == closed.value.rcvd.code


async def test_a_wait_ends_with_its_key(keyed, ending):
    key, end = ending
    made = await keyed.client.post(
        "/v1/jobs",
        json={"capability": "demo.echo", "input": {}},
        headers=keyed.shown(key),
    )
    asked = asyncio.create_task(
        keyed.client.get(
            made.json()["links"]["self"],
            headers={**keyed.shown(key), "Prefer": "wait=60"},
        )
    )
    await keyed.until(lambda: keyed.app.state.server_state.streams.open == 1)
    await end(key)
    response = await asyncio.wait_for(asked, 30)

    assert 401 == response.status_code


async def test_a_good_key_keeps_its_stream(keyed):
    key = await keyed.key()
    async with (
        asyncio.timeout(60),
        keyed.client.stream("GET", "/v1/events", headers=keyed.shown(key)) as response,
    ):
        lines = response.aiter_lines()
        await anext(lines)
        checks = 0
        good = keyed.backburner.keys.is_good

        async def counting(key_id):
            nonlocal checks
            checks += 1
            return await good(key_id)

        keyed.backburner.keys.is_good = counting
        await keyed.until(lambda: checks > 3)
        headers = keyed.shown(key)
        await keyed.client.post(
            "/v1/jobs", json={"capability": "demo.echo", "input": {}}, headers=headers
        )
        told = await anext(line async for line in lines if line.startswith("event"))

    assert "event: job.queued" == told


def test_one_key_never_takes_the_last_place():
    streams = Streams(limit=8)
    held = []

    def take(key, most):
        taken = 0
        for _ in range(most):
            place = streams.place(key)
            try:
                place.__enter__()
            except TooManyStreams:
                break
            held.append(place)
            taken += 1
        return taken

    assert [4, 2, 1] == [take(key, 100) for key in ("a", "b", "c")]
    assert streams.open < streams.limit
    for place in held:
        place.__exit__(None, None, None)
    assert 0 == streams.open
    assert 4 == take("d", 100), "what was given back can be taken"
    assert 4 == take(None, 100), "without keys there is one limit"


async def test_one_keys_streams_leave_room_for_anothers(keyed):
    keyed.app.state.server_state.streams.limit = 4
    greedy, other = await keyed.key(), await keyed.key()
    opened = [
        keyed.client.stream("GET", "/v1/events", headers=keyed.shown(key))
        for key in (greedy, greedy, greedy, other)
    ]
    answers = [(await stream.__aenter__()).status_code for stream in opened]
    for stream in opened:
        await stream.__aexit__(None, None, None)

    assert [200, 200, 503, 200] == answers


async def test_messages_over_a_socket_count_as_requests(serve):
    server = await serve(keyed=True, works=False, key_rate=0.05)
    async with asyncio.timeout(60), a_socket(server, await server.key()) as socket:
        await socket.send(orjson.dumps({"type": "subscribe"}).decode())
        told = orjson.loads(await socket.recv())

    assert ("error", "TOO_MANY_REQUESTS") == (told["type"], told["problem"]["code"])


async def test_a_message_that_is_too_large_ends_the_socket(keyed):
    async with asyncio.timeout(60), a_socket(keyed, await keyed.key()) as socket:
        await socket.send("x" * 16_385)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()

    assert 1009 == closed.value.rcvd.code
