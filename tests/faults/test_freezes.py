"""Workers that fall silent and are not dead."""

import asyncio
import re
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx2
import pytest

from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.job import JobState

LEASE = 1.5


async def freeze(process, client, eventually):
    """Stop a process, but not while it holds the file: nobody could go on then."""
    while True:
        process.signal(signal.SIGSTOP)
        # A thread that was not stopped yet could still take the file after the ping.
        await eventually(partial(asyncio.to_thread, is_stopped, process.pid))
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(1):
                return await client.store.ping()
        process.signal(signal.SIGCONT)


def is_stopped(pid):
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return {"T"} == {stat.read_text().rpartition(")")[2].split()[0] for stat in threads}


async def stale_completions(process):
    async with httpx2.AsyncClient(trust_env=False) as caller:
        told = (await caller.get(f"{process.address}/metrics")).text
    return float(
        re.search(r"^backburner_stale_completions_total (.+)$", told, re.MULTILINE)[1]
    )


async def freeze_past_the_lease(module, fleet, client, gate, eventually):
    """Have a job finished by another while its worker is frozen for three leases."""
    zombie = await fleet.serve(module).ready()
    [job] = await client.submit("block", {"gate": str(gate)})
    await client.seen(job, "job.started")
    await freeze(zombie, client, eventually)
    gate.unlink()
    heir = fleet.worker()
    await client.ended([job])
    await client.ended(await client.submit("work", {"seconds": 2 * LEASE}))
    zombie.signal(signal.SIGCONT)
    return zombie, heir, job


async def test_a_worker_whose_event_loop_is_blocked_gives_up_its_jobs(
    fleet, client, gate, tmp_path
):
    blocking = tmp_path / "blocking"
    blocking.touch()
    await fleet.worker(BACKBURNER_BLOCKED_SECONDS="1").ready()
    [job] = await client.submit("work", {"gate": str(gate)})
    first = await client.seen(job, "job.started")
    await client.submit("block", {"gate": str(blocking)})
    heir = fleet.worker()
    await client.seen(job, "job.stalled", after=first.n)
    blocking.unlink()
    gate.unlink()
    [done] = await client.ended([job])

    assert (JobState.SUCCEEDED, 1) == (done.state, done.crashes)
    assert heir.is_running


async def test_a_worker_that_wakes_after_its_lease_changes_nothing(
    fleet, client, gate, eventually
):
    zombie, heir, job = await freeze_past_the_lease(
        "breakable", fleet, client, gate, eventually
    )

    async def is_refused():
        return await stale_completions(zombie) == 1

    await eventually(is_refused)
    heir.kill()
    [later] = await client.submit("work", {})
    [done] = await client.ended([later])

    assert JobState.SUCCEEDED is done.state
    assert 1 == (await client.types(job)).count("job.succeeded")
    assert 2 == (await client.types(job)).count("job.started")
    assert [] == await client.audit()


@pytest.mark.thorough
async def test_without_the_fence_it_does(fleet, client, gate, eventually):
    _, _, job = await freeze_past_the_lease(
        "without_fence", fleet, client, gate, eventually
    )

    async def is_settled_again():
        return (await client.types(job)).count("job.succeeded") == 2

    await eventually(is_settled_again)

    assert {"I3", "I4"} <= {breach.invariant for breach in await client.audit()}


async def block_until_open(module, fleet, client, gate):
    """Have a handler block its worker's loop; return its start. Another is ready."""
    await fleet.worker(module).ready()
    [job] = await client.submit("block", {"gate": str(gate)})
    started = await client.seen(job, "job.started")
    await fleet.worker().ready()
    return job, started


async def test_a_handler_that_blocks_the_loop_is_not_run_twice(fleet, client, gate):
    job, _ = await block_until_open("breakable", fleet, client, gate)
    await client.ended(await client.submit("work", {"seconds": 3 * LEASE}))
    gate.unlink()
    [ended] = await client.ended([job])

    assert (JobState.SUCCEEDED, 1, 0) == (ended.state, ended.attempt, ended.crashes)
    assert ["job.queued", "job.started", "job.succeeded"] == await client.types(job)


async def test_nor_is_one_that_blocks_it_by_a_log_that_nobody_reads(
    fleet, client, gate
):
    job, _ = await block_until_open("stalled_log", fleet, client, gate)
    await client.ended(await client.submit("work", {"seconds": 3 * LEASE}))
    gate.unlink()
    [ended] = await client.ended([job])

    assert (JobState.SUCCEEDED, 1, 0) == (ended.state, ended.attempt, ended.crashes)


@pytest.mark.thorough
async def test_with_the_heartbeat_on_the_loop_it_is(fleet, client, gate):
    job, started = await block_until_open("beat_on_the_loop", fleet, client, gate)
    await client.seen(job, "job.started", after=started.n)
    gate.unlink()
    [ended] = await client.ended([job])

    assert 1 == ended.crashes
    assert 2 == (await client.types(job)).count("job.started")
