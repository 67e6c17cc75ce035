"""Lanes over HTTP and in the stream of all events."""

from datetime import timedelta

from backburner.domain.lanes.lane import Lane
from backburner.domain.lanes.permit import PermitRequest
from backburner.domain.lanes.rate_limit_headers import RateLimitInfo
from backburner.http.schemas.jobs import EventView
from backburner.ports.store.workers import WorkerInfo

WORKER = WorkerInfo("w_1", "here", 1, 8, ("demo",), 0)


async def refused(store, lane):
    """Have a call refused for half a minute."""
    await store.enlist(WORKER)
    permit = await store.take_permit(lane, WORKER.id, PermitRequest("p_1"))
    told = RateLimitInfo(is_refused=True, wait=30_000)
    await store.give_permit(lane, permit, told, PermitRequest("p_1"))


async def test_a_lane_tells_what_it_allows_and_has_learnt(serve):
    server = await serve(works=False)
    store = server.backburner.engine.store
    limits = Lane("p/m", 60, 9000, at_once=4, spacing=timedelta(seconds=0.5))
    await store.declare_lanes([limits])
    [fresh] = (await server.client.get("/v1/lanes")).json()["items"]
    await refused(store, "p/m")

    [lane] = (await server.client.get("/v1/lanes")).json()["items"]

    assert {
        "name": "p/m",
        "state": "open",
        "pace": 60.0,
        "ceiling": None,
        "requests": 60,
        "tokens": 9000,
        "at_once": 4,
        "spacing_seconds": 0.5,
        "in_use": 0,
        "last_minute": 0,
        "refused_last_minute": 0,
        "waiting": 0,
        "done_at": None,
        "parked_until": None,
        "parkings": 0,
    } == fresh
    assert ("parked", 1, 1) == (lane["state"], lane["last_minute"], lane["parkings"])
    assert lane["parked_until"] is not None
    assert lane["ceiling"] < 60
    # Who was refused waits, and goes when the lane opens.
    assert (1, 1) == (lane["refused_last_minute"], lane["waiting"])
    assert lane["done_at"] >= lane["parked_until"]


async def test_a_parked_lane_is_told_to_whoever_reads_queues(serve):
    server = await serve(works=False)
    await refused(server.backburner.engine.store, "p/m")

    async with server.client.stream("GET", "/v1/events?after=0") as events:
        async for line in events.aiter_lines():
            if line.startswith("data: "):
                break

    assert '"lane":"p/m"' in line
    assert '"type":"lane.throttled"' in line
    told = EventView.model_validate_json(line.removeprefix("data: "))
    assert "p/m" == told.lane
