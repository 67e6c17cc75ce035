"""A server that dies after its commit and before it tells the broker."""

from contextlib import suppress

import httpx2
import pytest

from backburner.domain.jobs.job import JobState
from backburner.ports.store.maintenance import JobFilter

PLACE = "relay.publish"


@pytest.fixture
def left_behind(fleet, client):
    """Have a server take a job and die; return the job's id."""

    async def submit(**settings):
        server = fleet.serve(
            "without_looks", "--no-worker", BACKBURNER_FAULT=PLACE, **settings
        )
        await server.ready()
        async with httpx2.AsyncClient(trust_env=False) as caller:
            body = {"capability": "work", "input": {}}
            with suppress(httpx2.TransportError):  # it may not have answered before
                await caller.post(f"{server.address}/v1/jobs", json=body)
        code = await server.ended()
        [job] = await client.store.jobs(JobFilter(), before=None, limit=9)
        return code, job.id

    return submit


async def test_another_process_tells_of_it(fleet, client, left_behind, redis_database):
    by_broker = {"BACKBURNER_TRANSPORT": redis_database}
    await fleet.worker(**by_broker).ready()

    code, job = await left_behind(**by_broker)
    [ended] = await client.ended([job])

    assert 137 == code
    assert JobState.SUCCEEDED is ended.state


async def test_without_looks_it_waits(fleet, client, left_behind, redis_database):
    by_broker = {
        "BACKBURNER_TRANSPORT": redis_database,
        "BACKBURNER_POLL_SECONDS": "60",
    }
    await fleet.worker("without_looks", **by_broker).ready()

    code, job = await left_behind(**by_broker)
    [waiting] = await client.ended([job], within=3)

    assert 137 == code
    assert JobState.QUEUED is waiting.state
