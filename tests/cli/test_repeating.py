"""Retries that start fresh, and forks, through both clients and the command line."""

import json
import shutil
from pathlib import Path

import pytest

from backburner.client import AsyncClient, Client


@pytest.fixture
def server(serve, tmp_path):
    shutil.copy(Path(__file__).parent / "apps" / "stepping.py", tmp_path)
    return serve("--app", "stepping:app")


@pytest.fixture
def client(server):
    with Client(server.url) as client:
        yield client


@pytest.fixture
def failed(client):
    """A job with two stored steps that has failed."""
    ticket = client.submit("step", True)
    ticket.wait(timeout=60)
    return ticket.job


def first_of(client, job):
    """Return the result of a job's first step, which is another in each computation."""
    return client.steps(job["id"])[0]["result"]


def test_a_retry_keeps_the_steps_of_a_job_unless_it_is_fresh(client, failed):
    stored = [first_of(client, failed)]
    for fresh in (False, True):
        ticket = client.ticket(failed["id"])
        ticket.retry(fresh=fresh)
        ticket.wait(timeout=60)
        stored.append(first_of(client, failed))

    assert stored[0] == stored[1] != stored[2]


def test_a_quote_of_a_fork_makes_no_job_and_a_fork_makes_one(client, failed):
    quoted = client.quote_fork(failed["id"], 2)
    before = [job["id"] for job in client.jobs()]
    made = client.fork(failed["id"], 2, False)
    result = client.ticket(made["id"]).result(timeout=60)

    assert ["first"] == quoted["reused"]
    assert [failed["id"]] == before
    assert first_of(client, failed) == result
    assert [made["id"], failed["id"]] == [job["id"] for job in client.jobs()]


async def test_the_awaited_client_does_the_same(server, client, failed):
    stored = first_of(client, failed)
    async with AsyncClient(server.url) as awaited:
        await awaited.quote_fork(failed["id"], 1)
        alone = [job["id"] async for job in awaited.jobs()]
        ticket = await awaited.ticket(failed["id"])
        await ticket.retry(fresh=True)
        await ticket.wait(timeout=60)

    assert [failed["id"]] == alone
    assert stored != first_of(client, failed)


def test_the_command_line_does_the_same(server, client, failed, run):
    where = ("--url", server.url, "--json")
    tried = run("fork", failed["id"], "--from", "2", "--dry-run", *where)
    alone = [job["id"] for job in client.jobs()]
    stored = first_of(client, failed)
    run("retry", failed["id"], "--fresh", *where)
    client.ticket(failed["id"]).wait(timeout=60)

    assert ["first"] == json.loads(tried.stdout)["reused"]
    assert [failed["id"]] == alone
    assert stored != first_of(client, failed)
