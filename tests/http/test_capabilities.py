"""What the server says of itself."""

import asyncio
from collections.abc import Callable

from pydantic import TypeAdapter

from backburner.http import server as http
from backburner.http import state
from backburner.http.routes import capabilities
from backburner.http.schemas.jobs import CapabilityList, QueueList, WorkerList


async def test_capabilities_tell_what_they_take_and_give(server):
    response = await server.client.get("/v1/capabilities")
    found = {c.name: c for c in CapabilityList.model_validate(response.json()).items}

    assert {
        "demo.block",
        "demo.echo",
        "demo.fail",
        "demo.sleep",
        "demo.write",
        "test.wait",
    } == set(found)
    assert "seconds" in found["demo.sleep"].input_schema["properties"]
    assert "slept" in found["demo.sleep"].output_schema["properties"]
    assert "Return the input." == found["demo.echo"].description


async def test_queues_tell_how_full_they_are(serve):
    server = await serve(works=False)
    first = await server.submit()
    await server.submit(run_at="2999-01-01T00:00:00Z")
    response = await server.client.get("/v1/queues")
    (queue,) = QueueList.model_validate(response.json()).items

    assert ("demo", 1, 1, 0) == (
        queue.name,
        queue.queued,
        queue.scheduled,
        queue.running,
    )
    assert first["created_at"] == response.json()["items"][0]["oldest_queued_at"]


async def test_workers_are_listed(server):
    response = await server.client.get("/v1/workers")
    (worker,) = WorkerList.model_validate(response.json()).items

    assert (["backburner.bulk", "demo"], 100) == (worker.queues, worker.slots)


async def test_a_healthy_server_says_so(server):
    alive = await server.client.get("/livez")
    ready = await server.client.get("/readyz")

    assert {"status": "ok"} == alive.json() == ready.json()


async def test_a_server_that_stops_is_alive_but_not_ready(server):
    http.stop(server.app)
    alive = await server.client.get("/livez")
    ready = await server.client.get("/readyz")

    assert (200, 503) == (alive.status_code, ready.status_code)


async def test_a_store_that_hangs_is_not_ready(server, monkeypatch):
    monkeypatch.setattr(state, "READY_SECONDS", 0.01)
    monkeypatch.setattr(server.backburner.engine.store, "ping", asyncio.Event().wait)
    response = await server.client.get("/readyz")

    assert 503 == response.status_code


async def test_metrics_count_what_waits_and_what_failed(server):
    await server.failed()
    await server.submit(run_at="2999-01-01T00:00:00Z")
    response = await server.client.get("/metrics")

    assert (
        "text/plain; version=0.0.4; charset=utf-8" == response.headers["Content-Type"]
    )
    assert 'backburner_queue_depth{queue="demo",state="scheduled"} 1.0' in response.text
    assert "backburner_dead_jobs 1.0" in response.text
    assert 'backburner_build_info{version="1.2.3"} 1.0' in response.text


async def test_metrics_tell_how_long_the_oldest_waits(serve):
    server = await serve(works=False)
    await server.submit()
    response = await server.client.get("/metrics")

    assert 'backburner_queue_oldest_age_seconds{queue="demo"}' in response.text


def test_a_type_without_a_schema_is_described_by_none():
    assert {} == capabilities._schema(TypeAdapter(Callable), "validation")


async def test_the_root_points_the_way(server):
    told = (await server.client.get("/")).json()

    assert ("backburner", "1.2.3", "/docs") == (
        told["name"],
        told["version"],
        told["docs"],
    )


async def test_the_page_loads_nothing_from_elsewhere(server):
    page = await server.client.get("/docs")
    script = await server.client.get("/docs/docs.js")
    style = await server.client.get("/docs/docs.css")
    policy = page.headers["Content-Security-Policy"]

    assert "text/html; charset=utf-8" == page.headers["Content-Type"]
    assert "text/javascript; charset=utf-8" == script.headers["Content-Type"]
    assert "text/css; charset=utf-8" == style.headers["Content-Type"]
    assert "default-src 'none'; script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "://" not in page.text + script.text + style.text
    assert "<style" not in page.text
    assert "<script src=" in page.text
    assert "onclick" not in page.text
    assert "innerHTML" not in script.text
    assert "prefers-color-scheme: dark" in style.text


async def test_many_who_ask_write_to_the_store_once(server, monkeypatch):
    written, ping = 0, server.backburner.engine.store.ping

    async def counting():
        nonlocal written
        written += 1
        await ping()

    monkeypatch.setattr(state, "FRESH_SECONDS", 3600)
    monkeypatch.setattr(server.backburner.engine.store, "ping", counting)
    answers = await asyncio.gather(
        *(server.client.get("/readyz") for _ in range(20)),
    )
    monkeypatch.setattr(state, "FRESH_SECONDS", 0)
    later = await server.client.get("/readyz")

    assert {200} == {answer.status_code for answer in [*answers, later]}
    assert 2 == written
