"""A 202 is a promise: what it promises is on the disk before it is said."""

import re

import httpx2

SUBMITS = 50


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


async def submit_and_trace(process, trace):
    async with httpx2.AsyncClient(base_url=process.address, trust_env=False) as caller:
        body = {"capability": "work", "input": {}}
        await caller.post("/v1/jobs", json=body)
        end = await trace(process)
        for _ in range(SUBMITS):
            await caller.post("/v1/jobs", json=body)
        return synced_before_each_202(await end())


async def test_a_sync_of_the_log_lies_before_each_202(fleet, trace):
    process = await fleet.serve("breakable", "--no-worker").ready()

    assert [True] * SUBMITS == await submit_and_trace(process, trace)


async def test_with_lazy_commits_none_does(fleet, trace):
    process = await fleet.serve("without_sync", "--no-worker").ready()

    assert [False] * SUBMITS == await submit_and_trace(process, trace)
