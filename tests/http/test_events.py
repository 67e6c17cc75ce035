"""Events over SSE."""

import asyncio
import socket
from datetime import timedelta

import httpx2
import orjson
import pytest

from backburner import Context, capability
from backburner.domain.jobs.job import Owner
from backburner.domain.queues.queue import Queue, Rate
from backburner.engine.submit.submission import Options
from backburner.http import server as http
from backburner.http.schemas.jobs import EventView
from backburner.http.streams import sse

pytestmark = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)

FLAKY = [
    "job.queued",
    *["job.started", "job.retrying", "job.queued"] * 3,
    "job.started",
    "job.succeeded",
]


async def read(server, url, *, count=None, **options):
    """Return the events of a stream, all of them or the first so many."""
    told = []
    async with server.client.sse(url, **options) as source:
        async for event in source:
            if event.data:
                told.append(event)
            if len(told) == count:
                break
    return told


async def opened(server, count=1):
    """Wait until so many streams are open."""
    await server.until(lambda: server.app.state.server_state.streams.open == count)


async def test_a_late_reader_gets_the_past_and_the_end(server):
    job = await server.ended(await server.submit())
    told = await read(server, job["links"]["events"])

    assert ["job.queued", "job.started", "job.succeeded"] == [e.event for e in told]
    assert ["1", "2", "3"] == [e.id for e in told]
    assert [EventView.model_validate_json(e.data).n for e in told] == [1, 2, 3]
    assert {job["id"]} == {orjson.loads(e.data)["job_id"] for e in told}


async def test_a_reader_cut_and_resumed_sees_every_event_once_and_in_order(server):
    job = await server.submit("test.wait", {"failures": 3})
    first = await read(server, job["links"]["events"], count=4)
    headers = {"Last-Event-ID": first[-1].id}
    second = await read(server, job["links"]["events"], count=3, headers=headers)
    server.release.set()
    last = second[-1].id
    third = await read(server, job["links"]["events"], params={"after": last})
    whole = first + second + third

    assert FLAKY == [event.event for event in whole]
    assert list(range(1, len(FLAKY) + 1)) == [int(event.id) for event in whole]


async def test_two_readers_of_one_job_see_the_same(server):
    job = await server.submit("test.wait", {"failures": 3})
    reading = [
        asyncio.create_task(read(server, job["links"]["events"])) for _ in range(2)
    ]
    await opened(server, 2)
    server.release.set()
    first, second = await asyncio.gather(*reading)

    assert FLAKY == [event.event for event in first]
    assert first == second


async def test_the_header_of_a_reconnect_goes_before_the_address(server):
    job = await server.ended(await server.submit())
    told = await read(
        server, f"{job['links']['events']}?after=0", headers={"Last-Event-ID": "2"}
    )

    assert ["3"] == [event.id for event in told]


async def test_a_reader_that_has_seen_the_end_is_told_to_stay_away(server):
    job = await server.ended(await server.submit())
    response = await server.client.get(
        job["links"]["events"], headers={"Last-Event-ID": "3"}
    )

    assert 204 == response.status_code


async def test_a_reader_that_leaves_frees_everything(server):
    job = await server.submit("test.wait")
    await read(server, job["links"]["events"], count=1)
    await opened(server, 0)

    assert {} == server.backburner.engine._watch._readers


async def test_all_jobs_are_read_in_one_stream_and_resumed_by_its_numbers(server):
    first = await server.ended(await server.submit())
    told = await read(server, "/v1/events", params={"after": 0}, count=3)
    second = await server.ended(await server.submit())
    headers = {"Last-Event-ID": told[-1].id}
    rest = await read(server, "/v1/events", headers=headers, count=3)
    numbers = [int(event.id) for event in told + rest]

    assert [first["id"]] * 3 + [second["id"]] * 3 == [
        orjson.loads(event.data)["job_id"] for event in told + rest
    ]
    assert sorted(set(numbers)) == numbers
    assert numbers == [orjson.loads(event.data)["seq"] for event in told + rest]


async def test_a_stream_without_a_cursor_begins_now_and_says_where(server):
    await server.ended(await server.submit())
    async with server.client.stream("GET", "/v1/events") as response:
        lines = response.aiter_lines()
        opening = [await anext(lines) for _ in range(3)]
        job = await server.submit(run_at="2999-01-01T00:00:00Z")
        told = [await anext(lines) for _ in range(3)]

    assert ["retry: 1000", "id: 3", ""] == opening
    assert ["id: 4", "event: job.scheduled"] == told[:2]
    assert job["id"] == orjson.loads(told[2].removeprefix("data: "))["job_id"]


async def test_the_stream_of_all_jobs_shows_the_callers_only(server):
    other = Options(owner=Owner("default", "2"))
    new = server.backburner.engine.prepare("demo.echo", {}, other)
    await server.backburner.engine.store_jobs([new])
    mine = await server.submit()
    told = await read(server, "/v1/events", params={"after": 0}, count=1)

    assert mine["id"] == orjson.loads(told[0].data)["job_id"]


@capability("narrow", queue="narrow")
async def narrow(_ctx: Context, value: None) -> None:
    return value


async def test_queues_are_told_of_to_those_who_may_read_them(serve):
    server = await serve(keyed=True, capabilities=[narrow])
    await server.backburner.engine.store.declare(
        [Queue("narrow", rate=Rate(1, per=timedelta(hours=1)))]
    )
    may, may_not = [
        server.shown(await server.key("default", "jobs:read", "jobs:write", *more))
        for more in (["queues:read"], [])
    ]
    server.client.headers.update(may)
    asked = {"capability": "narrow", "input": None}
    done, waiting = [
        (await server.client.post("/v1/jobs", json=asked)).json() for _ in range(2)
    ]
    told = []
    async with server.client.sse("/v1/events", params={"after": 0}) as source:
        async for event in source:
            told += [orjson.loads(event.data)] if event.data else []
            if told and told[-1]["type"] == "queue.throttled":
                break
    await server.client.post(waiting["links"]["cancel"])
    server.client.headers.update(may_not)
    others = await read(server, "/v1/events", params={"after": 0}, count=5)
    ids = [orjson.loads(event.data).get("job_id") for event in others]

    assert "narrow" == told[-1]["queue"]
    assert {done["id"], waiting["id"]} == set(ids)


async def test_a_silent_stream_shows_that_it_lives(server, monkeypatch):
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.01)
    async with server.client.stream("GET", "/v1/events?after=0") as response:
        lines = [line async for line, _ in _zip(response.aiter_lines(), range(7))]

    assert [": still here", "", ": still here", ""] == lines[3:]


async def _zip(lines, numbers):
    for number in numbers:
        yield await anext(lines), number


async def test_a_reader_that_takes_nothing_is_dropped(server, monkeypatch):
    monkeypatch.setattr(sse, "SEND_SECONDS", 0.05)
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.0001)
    monkeypatch.setattr(sse, "STILL_HERE", b":" + b" " * 100_000 + b"\n\n")
    host, port = httpx2.URL(server.url).host, httpx2.URL(server.url).port
    with socket.create_connection((host, port)) as reader:
        reader.sendall(f"GET /v1/events HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        await opened(server, 1)
        await opened(server, 0)

    assert 0 == server.app.state.server_state.streams.open


async def test_one_stream_too_many_is_refused_and_asked_to_come_back(server):
    server.app.state.server_state.streams.limit = 1
    async with server.client.sse("/v1/events"):
        await opened(server)
        refused = await server.client.get("/v1/events")

    assert 503 == refused.status_code
    assert "TOO_MANY_STREAMS" == refused.json()["code"]
    assert "5" == refused.headers["Retry-After"]


async def test_a_server_that_stops_ends_its_streams(server):
    reading = asyncio.create_task(read(server, "/v1/events", params={"after": 0}))
    await opened(server)
    http.stop(server.app)

    assert [] == await reading


@pytest.mark.parametrize("cursor", ["-1", "x", "1.5", "9223372036854775808", ""])
async def test_a_cursor_that_cannot_be_is_refused(server, cursor):
    job = await server.submit()
    response = await server.client.get(
        job["links"]["events"], headers={"Last-Event-ID": cursor}
    )

    assert 422 == response.status_code
    assert "INVALID_INPUT" == response.json()["code"]
