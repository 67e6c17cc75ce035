"""Applications' own events, over SSE and WebSockets."""

import asyncio
from contextlib import aclosing

import orjson
import pytest

from backburner import Context, capability
from backburner.client import AsyncClient
from backburner.domain.jobs.job import Owner, Tenant
from backburner.engine.submit.submission import LOCAL
from backburner.http.schemas.jobs import EventView
from backburner.testing.store.acts import DAY
from tests.http.test_events import opened, read
from tests.http.test_socket import a_socket, hear, say

pytestmark = [
    pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True),
    pytest.mark.one_store,  # what stores have in common: tests/conformance
]

FILES = "/v1/events?topic=files"


async def publish(server, n, *, topic="files", to=LOCAL):
    await server.backburner.transact(
        lambda tx: tx.publish(topic, "file:changed", {"n": n}, to=to)
    )


def said(events):
    return [orjson.loads(event.data)["data"]["n"] for event in events]


async def test_a_topic_is_followed_live_and_nothing_else(server):
    reading = asyncio.create_task(read(server, FILES, count=2))
    await opened(server)
    await server.submit()
    await publish(server, 1)
    await publish(server, 2, topic="other")
    await publish(server, 3)
    told = await reading
    view = EventView.model_validate_json(told[0].data)

    assert [1, 3] == said(told)
    assert ["file:changed"] * 2 == [event.event for event in told]
    assert ("files", 0, None) == (view.topic, view.n, view.job_id)
    assert [str(view.seq)] == [told[0].id]


async def test_a_reader_of_a_topic_resumes_where_it_was(server):
    for n in range(4):
        await publish(server, n)
    first = await read(server, FILES, count=2, params={"topic": "files", "after": 0})
    again = {"Last-Event-ID": first[-1].id}
    rest = await read(server, FILES, count=2, headers=again)

    assert [0, 1, 2, 3] == said(first) + said(rest)


async def test_nothing_of_another_owners_topic_is_delivered(server):
    await publish(server, 1, to=Owner(LOCAL.tenant, "another"))
    await publish(server, 2, to=Tenant("another"))
    await publish(server, 3, to=Tenant(LOCAL.tenant))
    await publish(server, 4)
    asked = {"topic": "files", "after": 0}

    assert [3, 4] == said(await read(server, "/v1/events", count=2, params=asked))
    everything = {"after": 0}
    assert [3, 4] == said(await read(server, "/v1/events", count=2, params=everything))


async def test_a_cursor_older_than_what_is_kept_gets_a_reset(server):
    for n in range(3):
        await publish(server, n)
    store = server.backburner.engine.store
    first, _, last = (await store.stream(LOCAL, after=0, limit=9)).events
    await store.forget_published(before=last.at, now=last.at + DAY, limit=9)
    await publish(server, 3)
    asked = {"topic": "files", "after": first.seq}
    reset, told = await read(server, "/v1/events", count=2, params=asked)
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", topic="files", after=first.seq)
        _, again, _ = await hear(socket, 3)

    assert ("reset", str(last.seq)) == (reset.event, reset.id)
    assert {"after": first.seq} == orjson.loads(reset.data)["data"]
    assert [3] == said([told])
    assert orjson.loads(reset.data) == again


async def test_a_topic_is_followed_over_a_socket(server):
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", topic="files")
        granted = (await hear(socket, 1))[0]
        await publish(server, 1, topic="other")
        await publish(server, 2)
        [told] = await hear(socket, 1)

    assert ("subscribed", "files") == (granted["type"], granted["topic"])
    assert ("files", "file:changed", {"n": 2}) == (
        *(told["topic"], told["type"], told["data"]),
    )


async def test_nothing_of_another_owners_topic_comes_over_a_socket(server):
    others = (Owner(LOCAL.tenant, "another"), Owner("another", LOCAL.user))
    for to in (*others, Tenant("another"), LOCAL):
        await publish(server, 1, to=to)
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", topic="files", after=0)
        _, past = await hear(socket, 2)
        for to in (*others, Tenant("another")):
            await publish(server, 2, to=to)
        await publish(server, 3)
        [live] = await hear(socket, 1)

    assert [1, 3] == [past["data"]["n"], live["data"]["n"]]
    assert past["seq"] + 4 <= live["seq"], "the others were published in between"


@pytest.mark.parametrize(
    "asked",
    [{"topic": ""}, {"topic": "a b"}, {"topic": "x" * 201}, {"topic": "a", "tag": "b"}],
)
async def test_what_is_no_topic_is_refused(server, asked):
    answer = await server.client.get("/v1/events", params=asked)
    async with a_socket(server) as socket:
        await say(socket, type="subscribe", **asked)
        [told] = await hear(socket, 1)

    assert (422, "INVALID_INPUT") == (answer.status_code, answer.json()["code"])
    assert ("error", "INVALID_INPUT") == (told["type"], told["problem"]["code"])


@capability("test.publish", queue="demo")
async def publishing(ctx: Context, topic: str) -> None:
    owner, said = ctx.job.owner, {"from": ctx.job.capability}
    ctx.at_settlement(lambda tx: tx.publish(topic, "file:made", said, to=owner))


async def test_a_handler_publishes_with_its_settlement(serve):
    server = await serve(capabilities=[publishing])
    await server.submit("test.publish", "files")
    asked = {"topic": "files", "after": 0}
    [told] = await read(server, "/v1/events", count=1, params=asked)

    assert {"from": "test.publish"} == orjson.loads(told.data)["data"]


async def test_a_client_follows_a_topic_and_is_told_of_a_reset(server):
    for n in range(3):
        await publish(server, n)
    store = server.backburner.engine.store
    first, _, last = (await store.stream(LOCAL, after=0, limit=9)).events
    async with AsyncClient(server.url) as client:
        async with aclosing(client.all_events(after=first.seq, topic="files")) as all_:
            told = await anext(all_)
        await store.forget_published(before=last.at, now=last.at, limit=9)
        async with aclosing(client.all_events(after=first.seq, topic="files")) as all_:
            reset = await anext(all_)

    assert ("files", {"n": 1}) == (told["topic"], told["data"])
    assert ("reset", {"after": first.seq}) == (reset["type"], reset["data"])
