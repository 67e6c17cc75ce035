"""Queues and schedules over HTTP, with a worker that obeys."""

from datetime import timedelta
from urllib.parse import quote

import pytest

from backburner.domain.events.event import STARTED
from backburner.domain.queues.queue import Keep, Queue, Rate
from backburner.domain.queues.schedule import ScheduleState
from backburner.stores.shared import activity
from backburner.testing.samples import NOON


async def the_queue(server, name="demo"):
    response = await server.client.get("/v1/queues")
    return next(q for q in response.json()["items"] if q["name"] == name)


async def has_started(server, job):
    engine = server.backburner.engine
    async for event in engine.events(await engine.find(job["id"])):
        if event.type == STARTED:
            return


async def test_a_queue_tells_what_it_allows(serve):
    server = await serve(works=False)
    rate = Rate(100, per=timedelta(minutes=1))
    policy = Queue(
        "demo",
        concurrency=8,
        per_worker=2,
        rate=rate,
        weights={"ann": 3},
        waiting=50,
        keep=Keep(succeeded=timedelta(hours=1), succeeded_count=10),
    )
    await server.backburner.engine.store.declare([policy])
    await server.submit()

    queue = await the_queue(server)

    assert {
        "name": "demo",
        "blocked": 0,
        "scheduled": 0,
        "queued": 1,
        "running": 0,
        "suspended": 0,
        "oldest_queued_at": queue["oldest_queued_at"],
        "paused": False,
        "concurrency": 8,
        "per_worker": 2,
        "rate": {"limit": 100, "per_seconds": 60.0},
        "limited_until": None,
        "weights": {"ann": 3},
        "waiting": 50,
        "keep": {
            "succeeded_seconds": 3600.0,
            "failed_seconds": None,
            "succeeded_count": 10,
            "failed_count": None,
        },
        "totals": {"completed": 0, "failed": 0, "cancelled": 0},
        "submitted_per_minute": 1.0,
        "ended_per_minute": 0.0,
    } == queue


async def test_a_queue_tells_how_many_of_its_jobs_ever_ended(server):
    await server.ended(await server.submit())
    await server.failed()
    held = await server.submit(run_at="2999-01-01T00:00:00Z")
    await server.client.post(f"/v1/jobs/{held['id']}/cancel")

    queue = await the_queue(server)
    metrics = await server.client.get("/metrics")

    assert {"completed": 1, "failed": 1, "cancelled": 1} == queue["totals"]
    rates = (queue["submitted_per_minute"], queue["ended_per_minute"])
    assert (3.0, 3.0) == rates
    for end in queue["totals"]:
        told = f'backburner_queue_ended_jobs{{end="{end}",queue="demo"}} 1.0'
        assert told in metrics.text


async def test_a_burst_is_not_taken_for_the_rate_of_a_minute(server, monkeypatch):
    monkeypatch.setattr(activity, "MOST_MOVES", 20)
    await server.client.post("/v1/queues/demo/pause")
    for _ in range(25):
        await server.submit()

    queue = await the_queue(server)

    # Of 25 events every second is read.
    assert 24 <= queue["submitted_per_minute"] <= 26
    assert 0 == queue["ended_per_minute"]


async def test_a_burst_is_counted_as_it_was(server, monkeypatch):
    monkeypatch.setattr(activity, "MOST_MOVES", 25)
    await server.client.post("/v1/queues/demo/pause")
    for _ in range(25):
        await server.submit()

    assert 25 == (await the_queue(server))["submitted_per_minute"]


async def test_a_paused_queue_starts_nothing_until_it_is_resumed(server):
    paused = await server.client.post("/v1/queues/demo/pause")
    job = await server.submit()
    patient = {"Prefer": "wait=1"}
    waiting = await server.client.get(job["links"]["self"], headers=patient)
    resumed = await server.client.post("/v1/queues/demo/resume")
    ended = await server.ended(job)

    assert (200, True) == (paused.status_code, paused.json()["paused"])
    assert "queued" == waiting.json()["state"]
    assert (200, False) == (resumed.status_code, resumed.json()["paused"])
    assert "succeeded" == ended["state"]


async def test_what_runs_when_its_queue_is_paused_goes_on(server):
    job = await server.submit("test.wait")
    await has_started(server, job)
    await server.client.post("/v1/queues/demo/pause")
    server.release.set()

    assert "succeeded" == (await server.ended(job))["state"]


async def test_a_queue_whose_window_is_closed_tells_until_when(serve):
    server = await serve(works=False)
    store = server.backburner.engine.store
    await store.declare([Queue("demo", rate=Rate(1, per=timedelta(days=1)))])
    await server.submit()
    await server.submit()
    await server.backburner.start_worker()
    await server.until(lambda: "queue.throttled" in server.log.getvalue())

    queue = await the_queue(server)
    metrics = await server.client.get("/metrics")

    assert 1 == queue["queued"]
    assert queue["limited_until"].endswith("T00:00:00.000Z")
    assert 'backburner_queue_throttled_total{queue="demo"} 1.0' in metrics.text


@pytest.mark.parametrize("name", ["a/b", "a/pause", "50%", "a b?c#d", "ü"])
async def test_a_queue_is_paused_whatever_it_is_called(server, name):
    await server.backburner.engine.store.declare([Queue(name)])
    here = f"/v1/queues/{quote(name, safe='')}"
    paused = await server.client.post(f"{here}/pause")
    resumed = await server.client.post(f"{here}/resume")

    assert [(200, name, True), (200, name, False)] == [
        (answer.status_code, answer.json()["name"], answer.json()["paused"])
        for answer in (paused, resumed)
    ]


async def test_a_queue_that_nobody_knows_is_not_found(server):
    response = await server.client.post("/v1/queues/unheard-of/pause")

    assert (404, "QUEUE_NOT_FOUND") == (response.status_code, response.json()["code"])
    assert [] == list(await server.backburner.engine.store.queues())


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_who_stops_a_queue_is_written_down(server, verb):
    await server.client.post(f"/v1/queues/demo/{verb}")

    [entry] = (await server.client.get("/v1/audit")).json()["items"]

    assert (f"queue.{verb}d", "demo") == (entry["action"], entry["target"])


async def test_schedules_are_listed(server):
    state = ScheduleState("nightly", "demo.echo", "0 3 * * *", "UTC", "skip", NOON)
    await server.backburner.engine.store.plan([state])

    response = await server.client.get("/v1/schedules")

    assert [
        {
            "name": "nightly",
            "capability": "demo.echo",
            "cron": "0 3 * * *",
            "timezone": "UTC",
            "missed": "skip",
            "next_at": "2026-01-01T12:00:00.000Z",
            "next_ticks": [
                "2026-01-01T12:00:00.000Z",
                "2026-01-02T03:00:00.000Z",
                "2026-01-03T03:00:00.000Z",
            ],
            "last_at": None,
            "paused": False,
            "declared": True,
            "tenant": None,
            "user": None,
            "input": None,
        }
    ] == response.json()["items"]
