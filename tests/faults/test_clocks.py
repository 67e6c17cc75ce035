"""Machines that disagree about the time: leases are judged by the store's clock."""

import pytest

LEASE = 1.5


async def hold_beside(module, fleet, client, gate):
    """Have a job run until the gate opens, beside a worker whose clock is wrong."""
    await fleet.worker().ready()
    [job] = await client.submit("work", {"gate": str(gate)})
    await client.seen(job, "job.started")
    await fleet.worker(module).ready()
    return job


@pytest.mark.parametrize("module", ["an_hour_ahead", "an_hour_behind"])
async def test_a_machine_an_hour_off_rescues_nobody_early(fleet, client, gate, module):
    job = await hold_beside(module, fleet, client, gate)
    await client.ended(await client.submit("work", {"seconds": 2 * LEASE}))
    gate.unlink()
    [ended] = await client.ended([job])

    assert 0 == ended.crashes
    assert ["job.queued", "job.started", "job.succeeded"] == await client.types(job)


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_one_that_judges_by_its_own_clock_does(fleet, client, gate):
    job = await hold_beside("buries_by_its_clock", fleet, client, gate)

    assert await client.seen(job, "job.stalled")
