"""A job's way through real processes, whoever tells workers of work."""

import asyncio
import secrets

import pytest

JOBS = 40


@pytest.fixture
def store_url(migrated_url):
    return migrated_url


@pytest.fixture(params=["rabbitmq", "redis", "sqs"])
def told(request):
    """The settings of a process that a broker tells of work."""
    url = request.getfixturevalue(f"{request.param}_url")
    name = f"private:path-{secrets.token_hex(4)}-:{url}"
    return {"BACKBURNER_TRANSPORT": name}


async def test_jobs_are_submitted_run_and_waited_for(fleet, client, caller_of, told):
    server = fleet.serve("breakable", "--no-worker", **told)
    worker = fleet.worker("unswept", **told)
    await asyncio.gather(server.ready(), worker.ready())
    caller = caller_of(server)
    await asyncio.gather(*(caller.submit() for _ in range(JOBS)))

    assert JOBS == await caller.all_is_well(client)
