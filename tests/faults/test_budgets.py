"""Budgets hold over the whole fleet: four servers at once, on both databases."""

import asyncio
import random
from contextlib import AsyncExitStack

import httpx2
import pytest
import sqlalchemy as sa
from spending import LIMIT, SHARE

from backburner.domain.costs.budget import Budget
from backburner.stores.tables import accounts
from backburner.testing.budgets import breaches
from backburner.testing.records import read

ASKED = 200
BALANCES = sa.select(
    accounts.c.held,
    accounts.c.settled,
    accounts.c.overdraft,
    accounts.c.ceiling,
)


@pytest.fixture
async def servers(fleet):
    """Start servers of an app; return a client of each."""
    async with AsyncExitStack() as stack:

        async def start(module="spending", count=4):
            started = [fleet.serve(module, "--no-worker") for _ in range(count)]
            await asyncio.gather(*(server.ready() for server in started))
            return [
                await stack.enter_async_context(
                    httpx2.AsyncClient(
                        base_url=server.address, timeout=60, trust_env=False
                    )
                )
                for server in started
            ]

        yield start


async def ask(clients, count=ASKED, capability="spend"):
    """Submit so many at once, dealt out to all servers."""
    body = {"capability": capability, "input": {}}
    return await asyncio.gather(
        *(clients[n % len(clients)].post("/v1/jobs", json=body) for n in range(count))
    )


def ids(answers):
    """Return the jobs that were taken."""
    return [a.json()["id"] for a in answers if a.status_code == 202]


async def balances(client):
    rows = await client.store.transact(lambda tx: tx.connection.execute(BALANCES).all())
    return [tuple(row) for row in rows]


def read_at_once(tx):
    """Read everything as it is at one moment."""
    if tx.connection.dialect.name == "postgresql":
        tx.connection.execute(
            sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        )
    return read(tx.connection)


async def ledger_breaches(client, *, at_rest=True):
    """Return what the auditor finds wrong; while work is under way it may be held."""
    books = await client.store.transact(read_at_once)
    told = [breach.told for breach in breaches(books)]
    return told if at_rest else [said for said in told if "at rest" not in said]


async def test_no_more_are_admitted_by_four_servers_than_the_budget_has_room_for(
    servers, client, fleet
):
    clients = await servers()
    first = await ask(clients, capability="waste")
    full = await balances(client)
    broken = await ledger_breaches(client, at_rest=False)
    await fleet.worker("spending").ready()
    dead = await client.ended(ids(first))
    free = await balances(client)
    second = await ask(clients)
    done = await client.ended(ids(second))

    refused = [a for a in (*first, *second) if a.status_code != 202]
    assert 10 == len(ids(first)), "a user never seen before is limited at once"
    assert {429} == {a.status_code for a in refused}
    assert {"BUDGET_EXHAUSTED"} == {a.json()["code"] for a in refused}
    assert [(LIMIT, 0, 0, LIMIT)] == full
    assert [] == broken
    assert {"failed"} == {str(job.state) for job in dead}
    assert [(0, 0, 0, LIMIT)] == free, "all failed: nothing is held"
    assert 10 == len(ids(second)), "a budget that is in use has as much room"
    assert {"succeeded"} == {str(job.state) for job in done}
    assert [(0, LIMIT, 0, LIMIT)] == await balances(client)
    assert [] == await ledger_breaches(client)


@pytest.mark.thorough
async def test_with_check_then_add_more_are_admitted(servers, client):
    answers = await ask(await servers("checks_then_adds", 2))

    assert len(ids(answers)) > 10
    assert any("admitted" in b for b in await ledger_breaches(client, at_rest=False))


async def test_the_ledger_holds_through_servers_and_workers_that_are_killed(
    servers, client, fleet, ticks
):
    await client.store.put_budgets([Budget("user", tokens=40 * SHARE)])
    lots = random.Random(5)
    clients = await servers("spending")
    hosts = fleet.processes[:]
    workers = [fleet.worker("spending") for _ in range(2)]
    seen = []

    async def submit(at):
        for _ in range(40):
            name = lots.choice(("spend", "waste", "overspend"))
            try:
                await ask([clients[at]], 1, name)
            except httpx2.TransportError:
                return  # it was killed

    asking = [asyncio.create_task(submit(at)) for at in range(len(clients))]
    async for number in ticks(0.5, 6):
        seen += await ledger_breaches(client, at_rest=False)
        if number in {1, 3}:
            hosts.pop().kill()
        elif number in {2, 4}:
            workers.pop(0).kill()
            workers.append(fleet.worker("spending"))
    await asyncio.gather(*asking)
    [(held, settled, overdraft, limit)] = await balances(client)
    jobs = await client.store.transact(
        lambda tx: tx.connection.execute(sa.text("SELECT id FROM jobs")).scalars().all()
    )
    await client.ended(jobs)

    assert [] == seen
    assert settled - overdraft + held <= limit == 40 * SHARE
    assert len(jobs) > 10
    assert 0 == (await balances(client))[0][0]
    assert [] == await ledger_breaches(client)
