"""
Stream tokens for a topic, by every kind of stream that takes one.

Each opens that topic and nothing else; when it expires or its key is revoked, the open
stream closes and the token opens nothing any more.
"""

import asyncio
import json

import pytest
from fastapi import APIRouter
from websockets.exceptions import ConnectionClosed, InvalidStatus

from backburner import web
from tests.http.test_browser import (
    BROWSER,
    SPANS,
    read_to_the_end,
    socket_of,
    streaming,
    token_for,
)


def an_application():
    """Return the routes of an application that streams events of its own."""
    router = APIRouter()

    async def endless():
        yield web.ServerEvent({"n": 1})
        await asyncio.Event().wait()

    @router.get("/app/notes")
    async def follow(reader: web.StreamReader):
        reader.following("topic", "notes")
        return web.ServerEvents(endless())

    return router.routes


@pytest.fixture
async def keyed(serve):
    return await serve(
        keyed=True, works=False, limits=BROWSER, app_routes=an_application()
    )


async def nothing():
    """Do nothing while a stream is open."""


def by_sse(path, **asked):
    """Return how to follow a stream of server-sent events."""

    async def follow(server, token, meanwhile=nothing):
        async with streaming(server, path, token=token, **asked) as answered:
            if answered.status_code == 200:
                await meanwhile()
            await read_to_the_end(answered)
        return answered.status_code

    return follow


async def by_socket(server, token, meanwhile=nothing):
    try:
        async with asyncio.timeout(60), socket_of(server, token) as socket:
            await socket.send(json.dumps({"type": "subscribe", "topic": "notes"}))
            told = json.loads(await socket.recv())
            if told["type"] == "error":
                return told["problem"]["status"]
            await meanwhile()
            while True:
                await socket.recv()
    except ConnectionClosed:
        return 200
    except InvalidStatus as refused:
        return refused.response.status_code


@pytest.fixture(
    params=[
        pytest.param(by_sse("/v1/events", topic="notes"), id="topic"),
        pytest.param(by_sse("/app/notes"), id="application"),
        pytest.param(by_socket, id="socket"),
    ]
)
def follow(request):
    """Follow the topic `notes` to the stream's end; return the status it had."""
    return request.param


async def reader(server):
    """Return the headers of a key that may read, and the key's id."""
    text = await server.key("acme", "jobs:read", user="ann")
    return server.shown(text), text.split("_")[2]


async def test_a_token_for_another_topic_opens_nothing(keyed, follow):
    headers, _ = await reader(keyed)
    other = await token_for(keyed, headers, topic="others")

    assert 403 == await follow(keyed, other)


async def test_a_stream_closes_when_its_token_expires(keyed, follow):
    headers, _ = await reader(keyed)
    for seconds in SPANS:
        token = await token_for(keyed, headers, topic="notes", seconds=seconds)
        status = await follow(keyed, token)
        if status == 200:
            break

    assert (200, 401) == (status, await follow(keyed, token))


async def test_a_stream_closes_when_the_key_of_its_token_is_revoked(keyed, follow):
    headers, key_id = await reader(keyed)
    admin = keyed.shown(await keyed.key("acme"))
    token = await token_for(keyed, headers, topic="notes")

    async def revoke():
        gone = await keyed.client.delete(f"/v1/keys/{key_id}", headers=admin)
        assert 204 == gone.status_code

    assert (200, 401) == (
        await follow(keyed, token, revoke),
        await follow(keyed, token),
    )
