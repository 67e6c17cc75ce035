"""
A network between processes and PostgreSQL that delays, cuts and goes silent.

The tests look at the database by a way of their own, which does not fail.
"""

import asyncio
from typing import NamedTuple

import httpx2
import pytest

from backburner.domain.jobs.job import JobState
from backburner.ports.store.maintenance import JobFilter

MANY = {"BACKBURNER_CRASH_LIMIT": "1000"}
FEW, MOST = 20, 400
BODY = {"capability": "work", "input": {"seconds": 0.02}}


@pytest.fixture
def store_url(migrated_url):
    return migrated_url


def through(proxy):
    return {"BACKBURNER_STORE": proxy.url, **MANY}


async def submit(caller, key, ledger):
    """Submit until it is taken, as our client does; return how often it was tried."""
    headers = {"Idempotency-Key": key} if key else {}
    for tried in range(1, 200):
        try:
            answer = await caller.post("/v1/jobs", json=BODY, headers=headers)
        except httpx2.TransportError:
            continue
        if answer.status_code == 202:
            ledger.acknowledge(answer.json()["id"], key or None)
            ledger.effective.append(answer.json()["id"])
            return tried
        assert 503 == answer.status_code, answer.text
        assert answer.headers["Retry-After"]
    raise AssertionError("nothing was taken in 200 tries")


async def submit_all(caller, count, client, *, keyed=True):
    few = asyncio.Semaphore(8)

    async def one(number):
        async with few:
            key = f"key-{number}" if keyed else ""
            return await submit(caller, key, client.ledger)

    return sum(await asyncio.gather(*map(one, range(count))))


async def stored(client):
    return await client.store.jobs(JobFilter(), before=None, limit=10_000)


class Weather(NamedTuple):
    """How bad the network is, and for how many jobs."""

    jobs: int
    resets: float
    delays: tuple[float, float]


@pytest.mark.experiment(19)
@pytest.mark.parametrize(
    "weather",
    [
        pytest.param(Weather(100, 0.05, (0.0, 0.01)), id="cuts"),
        pytest.param(
            Weather(100, 0.02, (0.02, 0.3)), id="jitter", marks=pytest.mark.chaos
        ),
    ],
)
async def test_commits_whose_answer_was_cut_are_neither_lost_nor_doubled(
    fleet, client, http, proxy, experiment, weather
):
    jobs, resets, delays = weather
    server = await fleet.serve("breakable", "--no-worker", **through(proxy)).ready()
    for _ in range(2):
        await fleet.worker(**through(proxy)).ready()
    proxy.resets, proxy.delays = resets, delays
    tries = await submit_all(await http(server), jobs, client)
    proxy.heal()
    await experiment.drain(client)

    assert proxy.cuts > 5, "the network failed too seldom to show anything"
    assert tries > jobs, "no submit met a fault"
    left = len(await stored(client))
    experiment.found("one job per key", left == jobs, jobs=jobs, stored=left)
    await experiment.judge(client)


@pytest.mark.experiment(19)
async def test_without_keys_what_was_cut_is_doubled(fleet, client, http, proxy):
    server = await fleet.serve("breakable", "--no-worker", **through(proxy)).ready()
    proxy.resets, submitted = 0.2, 0
    caller = await http(server)
    while submitted < MOST and len(await stored(client)) == submitted:
        await submit_all(caller, FEW, client, keyed=False)
        submitted += FEW
    proxy.heal()

    assert len(await stored(client)) > submitted


@pytest.fixture
def silenced(fleet, client, gate, proxy):
    """Have a job run behind a network that goes silent, until another has done it."""

    async def silenced(module):
        cut_off = await fleet.serve(module, **through(proxy)).ready()
        [job] = await client.submit("block", {"gate": str(gate)})
        await client.seen(job, "job.started")
        proxy.freeze()
        heir = await fleet.worker(**MANY).ready()
        await client.seen(job, "job.stalled")
        gate.unlink()
        [ended] = await client.ended([job])
        assert JobState.SUCCEEDED is ended.state
        return cut_off, heir, job

    return silenced


@pytest.mark.experiment(20)
async def test_a_worker_that_is_cut_off_in_silence_loses_its_job_and_settles_nothing(
    silenced, client, proxy, submitter, experiment, eventually
):
    cut_off, heir, job = await silenced("breakable")

    async def has_given_up():
        return "worker lost its lease" in cut_off.log

    await eventually(has_given_up)
    experiment.found("fences itself while it is cut off", held=True)
    proxy.heal()
    heir.kill()
    await (await submitter(cut_off)).until({202})
    await experiment.drain(client)

    once = (await client.types(job)).count("job.succeeded")
    experiment.found("settled once", once == 1, times=once)
    await experiment.judge(client)


@pytest.mark.experiment(20)
async def test_without_the_fence_it_settles_a_second_time(
    silenced, client, proxy, eventually
):
    *_, job = await silenced("without_fence")
    proxy.heal()

    async def is_settled_again():
        return (await client.types(job)).count("job.succeeded") == 2

    await eventually(is_settled_again)

    assert "I3" in {breach.invariant for breach in await client.audit()}


@pytest.mark.experiment(20)
@pytest.mark.chaos
async def test_every_call_ends_though_the_network_says_nothing(
    fleet, client, http, proxy, experiment
):
    server = await fleet.serve("breakable", "--no-worker", **through(proxy)).ready()
    await fleet.worker(**MANY).ready()
    caller = await http(server, within=50.0)
    await submit(caller, "before", client.ledger)
    proxy.freeze()
    answers = await asyncio.gather(
        *(caller.post("/v1/jobs", json=BODY) for _ in range(20)),
        *(caller.get("/v1/jobs") for _ in range(20)),
        caller.get("/readyz"),
        return_exceptions=True,
    )
    proxy.heal()
    await submit(caller, "after", client.ledger)

    kinds = {getattr(answer, "status_code", repr(answer)) for answer in answers}
    experiment.found(
        "every call ends in 503", kinds == {503}, seen=sorted(map(str, kinds))
    )
    await experiment.drain(client)
    await experiment.judge(client)


@pytest.mark.experiment(20)
async def test_connections_that_are_dead_in_silence_are_noticed_and_replaced(
    fleet, client, http, proxy, experiment
):
    server = await fleet.serve("impatient", "--no-worker", **through(proxy)).ready()
    worker = await fleet.worker("impatient", **through(proxy)).ready()
    caller = await http(server)
    await submit(caller, "before", client.ledger)
    await experiment.drain(client)
    proxy.orphan_all()
    await submit(caller, "after", client.ledger)
    await experiment.drain(client, within=90.0)

    experiment.found("workers go on", worker.is_running)
    await experiment.judge(client)
