"""A 202 is a promise: what it promises is on the disk before it is said."""

import re

import asyncpg
import httpx2
import pytest

SUBMITS = 50
SESSIONS = """
SELECT pid FROM pg_stat_activity
 WHERE application_name = 'backburner' OR backend_type = 'walwriter'
"""


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request, tmp_path):
    """A file, or a server whose processes are on this machine."""
    if request.param == "postgres":
        return request.getfixturevalue("own_postgres").url
    return f"sqlite:///{tmp_path / 'jobs.db'}"


async def writers(process, url):
    """Return the processes that take a request and write it."""
    if url.startswith("sqlite"):
        return [process.pid]
    server = await asyncpg.connect(url)
    rows = await server.fetch(SESSIONS)
    await server.close()
    return [process.pid, *(row["pid"] for row in rows)]


def synced_before_each_202(lines):
    """Say of each 202 whether a sync ended after its request had come in."""
    answers = []
    is_synced = False
    for line in lines:
        if '"POST /v1/jobs' in line:
            is_synced = False
        elif re.search(r"(fdatasync|fsync)(\(\d+\)| resumed>\)).* = 0$", line):
            is_synced = True
        elif '"HTTP/1.1 202' in line:
            answers.append(is_synced)
    return answers


async def submit_and_trace(process, url, trace):
    async with httpx2.AsyncClient(base_url=process.address, trust_env=False) as caller:
        body = {"capability": "work", "input": {}}
        await caller.post("/v1/jobs", json=body)
        end = await trace(*await writers(process, url))
        for _ in range(SUBMITS):
            await caller.post("/v1/jobs", json=body)
        return synced_before_each_202(await end())


@pytest.mark.executed
async def test_a_sync_of_the_log_lies_before_each_202(fleet, trace):
    process = await fleet.serve("breakable", "--no-worker").ready()
    answers = await submit_and_trace(process, fleet.url, trace)

    assert [True] * SUBMITS == answers


@pytest.mark.thorough
async def test_with_lazy_commits_it_is_not_waited_for(fleet, trace):
    process = await fleet.serve("without_sync", "--no-worker").ready()
    answers = await submit_and_trace(process, fleet.url, trace)

    # The server's own writer may come by at any time; a file has none.
    most = 0 if fleet.url.startswith("sqlite") else SUBMITS // 2
    assert SUBMITS == len(answers)
    assert answers.count(True) <= most
