"""SQS tells of work: one path from end to end, and a job that outlasts its patience."""

import asyncio
import secrets

import pytest

from backburner.brokers.sqs import SqsBroker
from backburner.domain.jobs.job import JobState

QUEUE = "default"
HIDDEN_SECONDS = 2


@pytest.fixture
def store_url(migrated_url):
    return migrated_url


@pytest.fixture
def url(sqs_url):
    """Queues of its own on the server, and little patience."""
    return f"{sqs_url}&prefix={secrets.token_hex(4)}_&visibility={HIDDEN_SECONDS}"


@pytest.fixture
def told(url):
    """The settings of a process that the broker tells of work."""
    return {"BACKBURNER_TRANSPORT": url}


async def test_jobs_that_come_by_http_run_where_sqs_tells_of_them(
    fleet, client, caller_of, told
):
    server = await fleet.serve("unswept", "--no-worker", **told).ready()
    await fleet.worker("unswept", **told).ready()
    caller = caller_of(server)
    await asyncio.gather(*[caller.submit() for _ in range(50)])

    assert 50 == await caller.all_is_well(client)
    assert "broker" not in fleet.logs, "the server failed a call"


async def test_a_job_longer_than_the_visibility_timeout_runs_once(fleet, client, told):
    await fleet.worker("unswept", **told).ready()
    [job] = await client.submit("work", {"seconds": 2.5 * HIDDEN_SECONDS})
    [ended] = await client.ended([job])

    assert JobState.SUCCEEDED is ended.state
    assert 1 == (await client.types(job)).count("job.started")
    assert [] == await client.audit()


async def test_who_acknowledges_after_the_work_is_handed_it_twice(url):
    broker = SqsBroker.from_url(url)
    await broker.open()
    await broker.publish({QUEUE: 1})
    [first] = await broker.receive(QUEUE, 1)
    async with asyncio.timeout(60):
        [again] = await broker.receive(QUEUE, 1)
    await broker.acknowledge(QUEUE, [again])
    await broker.close()

    assert first.body == again.body
