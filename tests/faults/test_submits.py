"""Submits over HTTP to servers that die, and to several at once."""

import asyncio

import httpx2
import pytest
import sqlalchemy as sa

from backburner.ports.store.maintenance import JobFilter
from backburner.testing.auditor import Answer

BODY = {"capability": "work", "input": {}}


def a_caller(process):
    return httpx2.AsyncClient(base_url=process.address, timeout=60, trust_env=False)


async def jobs_in(client):
    return await client.store.jobs(JobFilter(), before=None, limit=99)


async def submit_with_one_key(fleet, times, module="breakable"):
    servers = [fleet.serve(module, "--no-worker") for _ in range(2)]
    callers = [a_caller(await server.ready()) for server in servers]
    answers = await asyncio.gather(
        *(
            callers[number % 2].post(
                "/v1/jobs", json=BODY, headers={"Idempotency-Key": "k"}
            )
            for number in range(times)
        )
    )
    for caller in callers:
        await caller.aclose()
    return answers


async def test_one_key_submitted_by_many_at_once_makes_one_job(fleet, client):
    answers = await submit_with_one_key(fleet, 50)
    client.ledger.answers = [Answer("k", "", a.json()["id"]) for a in answers]

    assert {202} == {answer.status_code for answer in answers}
    assert 1 == len({answer.json()["id"] for answer in answers})
    assert 49 == len([a for a in answers if a.headers.get("Idempotency-Replayed")])
    assert 1 == len(await jobs_in(client))
    assert [] == [b for b in await client.audit() if b.invariant == "I7"]


async def test_without_the_unique_index_it_makes_several(fleet, client):
    await client.store.transact(
        lambda tx: tx.connection.execute(sa.text("DROP INDEX jobs_idempotency"))
    )
    await submit_with_one_key(fleet, 50, "without_index")

    assert len(await jobs_in(client)) > 1
    assert "I7" in {breach.invariant for breach in await client.audit()}


@pytest.mark.parametrize(
    ("fault", "replayed"),
    [("submit.after_commit", "true"), ("submit.before_commit", None)],
)
async def test_a_submit_cut_off_by_a_crash_may_be_repeated(
    fleet, client, fault, replayed
):
    first = fleet.serve("breakable", "--no-worker", BACKBURNER_FAULT=fault)
    await first.ready()
    headers = {"Idempotency-Key": "k"}
    async with a_caller(first) as caller:
        with pytest.raises(httpx2.TransportError):
            await caller.post("/v1/jobs", json=BODY, headers=headers)
    code = await first.ended()
    left = await jobs_in(client)
    second = await fleet.serve("breakable", "--no-worker").ready()
    async with a_caller(second) as caller:
        answer = await caller.post("/v1/jobs", json=BODY, headers=headers)

    assert 137 == code
    assert 202 == answer.status_code
    assert replayed == answer.headers.get("Idempotency-Replayed")
    assert (1 if replayed else 0) == len(left)
    assert [answer.json()["id"]] == [job.id for job in await jobs_in(client)]
