"""Machines that disagree about the time: leases are judged by the store's clock."""

import pytest

LEASE = 1.5


async def hold_beside(module, fleet, client):
    """Run a job for three leases beside a worker whose clock is wrong."""
    await fleet.worker().ready()
    [job] = await client.submit("work", {"seconds": 3 * LEASE})
    await client.seen(job, "job.started")
    await fleet.worker(module).ready()
    [ended] = await client.ended([job])
    return ended


@pytest.mark.parametrize("module", ["an_hour_ahead", "an_hour_behind"])
async def test_a_machine_an_hour_off_rescues_nobody_early(fleet, client, module):
    job = await hold_beside(module, fleet, client)

    assert 0 == job.crashes
    assert ["job.queued", "job.started", "job.succeeded"] == await client.types(job.id)


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_one_that_judges_by_its_own_clock_does(fleet, client):
    job = await hold_beside("buries_by_its_clock", fleet, client)

    assert job.crashes > 0
