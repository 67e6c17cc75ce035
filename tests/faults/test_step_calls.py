"""Workers killed at random while handlers call a model: who pays, and how often."""

import asyncio
import random
from collections import Counter

import pytest
import sqlalchemy as sa
from calling import CALLS

from backburner import Budget
from backburner.domain.jobs.job import JobState
from backburner.ports.store.budgets import Viewer
from backburner.stores.tables import usages
from tests.faults.fake_llm import WRITTEN, fake_llm

WORKERS, SLOTS = 3, 3
PAUSE = 0.1
PATIENCE = 180.0
MANY = {"BACKBURNER_CRASH_LIMIT": "1000"}
SIZES = pytest.mark.parametrize(
    ("jobs", "kills"),
    [
        pytest.param(6, 5, id="few"),
        pytest.param(50, 200, id="many", marks=pytest.mark.chaos),
    ],
)


@pytest.fixture
async def llm():
    async with fake_llm() as server:
        yield server


async def killed_throughout(fleet, client, llm, jobs, kills, name="five calls"):
    """Kill workers at random, evenly over all calls of the jobs; return the jobs."""
    dice = random.Random(22)
    names = [f"job {n}" for n in range(jobs)]
    ids = await client.submit(name, *names)

    def start(key):
        settings = MANY | llm.environment(key)
        return fleet.worker("calling", slots=SLOTS, **settings)

    workers = {f"sk-{n}": start(f"sk-{n}") for n in range(WORKERS)}
    done = asyncio.ensure_future(client.ended(ids, within=1800))
    for killed in range(kills):
        await llm.allow(jobs * CALLS * killed // kills)
        async with asyncio.timeout(PATIENCE):
            victim = dice.choice(await llm.callers())
        # The call may go on, be answered, or be followed by the next one.
        await asyncio.wait({done}, timeout=dice.uniform(0, PAUSE))
        workers[victim].kill()
        workers[victim] = start(victim)
    await llm.allow(10**9)
    return dict(zip(names, await done, strict=True))


@SIZES
async def test_a_kill_repeats_the_call_in_flight_and_no_other(
    fleet, client, llm, jobs, kills
):
    await client.store.put_budgets([Budget("tenant", tokens=10**9)])
    ended = await killed_throughout(fleet, client, llm, jobs, kills)

    assert {JobState.SUCCEEDED} == {job.state for job in ended.values()}
    crashes = {name: job.crashes for name, job in ended.items()}
    repeated = {name: calls - CALLS for name, calls in llm.calls().items()}
    assert ended.keys() == repeated.keys()
    assert sum(repeated.values()) > 0, "no kill met a call: this shows nothing"
    assert {} == {n: (r, crashes[n]) for n, r in repeated.items() if r > crashes[n]}
    await agree(client, llm, ended)


async def test_a_call_under_way_when_its_worker_dies_is_suspected_spend(
    fleet, client, llm, eventually
):
    [job_id] = await client.submit("five calls", "job 0")
    job = await client.engine.find(job_id)
    worker = fleet.worker("calling", **MANY, **llm.environment("sk-0"))

    async def is_noted():
        return any(step.is_open for step in await client.store.steps_of(job.seq))

    await llm.callers()
    await eventually(is_noted)
    worker.kill()
    await llm.allow(10**9)
    fleet.worker("calling", **MANY, **llm.environment("sk-0"))
    [ended] = await client.ended([job_id])
    steps = await client.store.steps_of(job.seq)

    assert (JobState.SUCCEEDED, CALLS + 1) == (ended.state, len(llm.journal))
    [first, *others] = [step.doubts for step in steps]
    assert (1, 0) == (first, sum(others))
    assert steps[0].expected > 0


@SIZES
async def test_with_a_lookup_no_call_is_repeated(fleet, client, llm, jobs, kills):
    await client.store.put_budgets([Budget("tenant", tokens=10**9)])
    ended = await killed_throughout(
        fleet, client, llm, jobs, kills, name="five calls once"
    )

    assert {JobState.SUCCEEDED} == {job.state for job in ended.values()}
    assert sum(job.crashes for job in ended.values()) > 0
    assert dict.fromkeys(ended, CALLS) == llm.calls()
    assert {*llm.journal} == await agree(client, llm, ended)


async def agree(client, llm, ended):
    """Check usage and ledger against the journal, to the token; return the known."""
    charged = {call.read: call.job for call in llm.journal}
    names = {job.seq: name for name, job in ended.items()}
    booked = await client.store.read(
        lambda c: c.execute(sa.select(usages.c.job, usages.c.input_tokens)).all()
    )
    assert len(booked) == len({read for _, read in booked}), "a call is booked twice"
    assert {} == {r: job for job, r in booked if charged.get(r) != names[job]}
    # What is not booked was under way when its worker was killed.
    known = {read for _, read in booked}
    lost = Counter(job for read, job in charged.items() if read not in known)
    assert {} == {n: k for n, k in lost.items() if k > ended[n].crashes}
    [account] = await client.store.accounts(Viewer(), limit=10)
    assert (0, sum(known) + WRITTEN * len(known)) == (
        account.balance.held,
        account.balance.settled,
    )
    return {call for call in llm.journal if call.read in known}


@pytest.mark.thorough
@pytest.mark.one_store
async def test_control_without_steps_a_kill_repeats_the_calls_before_it(
    fleet, client, llm
):
    name = "five forgotten calls"
    ended = await killed_throughout(fleet, client, llm, 6, 5, name)
    repeated = {name: calls - CALLS for name, calls in llm.calls().items()}
    assert any(repeated[name] > job.crashes for name, job in ended.items())
