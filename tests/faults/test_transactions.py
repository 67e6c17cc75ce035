"""Handlers whose worker falls silent before or inside a transaction of theirs."""

import signal

import pytest
import sqlalchemy as sa
from breakable import effects

from backburner.domain.jobs.job import JobState
from tests.faults.test_freezes import freeze, stale_completions

LEASE = 1.5


async def written(client, job):
    """Return how many rows the runs of a job have committed."""
    query = sa.select(sa.func.count()).where(effects.c.job == job)
    return await client.store.snapshot(lambda c: c.execute(query).scalar_one())


def begun(gate):
    """Return whether a handler says that it has begun."""

    async def has_begun():
        return gate.with_suffix(".begun").exists()

    return has_begun


async def wake_without_the_lease(module, fleet, client, gate, eventually):
    """Freeze a worker just before its transaction; have another take the job over."""
    zombie = await fleet.serve(module).ready()
    [job] = await client.submit("transact", {"gate": str(gate)})
    await eventually(begun(gate))
    await freeze(zombie, client, eventually)
    gate.unlink()
    heir = await fleet.worker().ready()
    [done] = await client.ended([job])
    before = await written(client, job)
    zombie.signal(signal.SIGCONT)
    return zombie, heir, done, before


async def test_a_worker_that_wakes_without_its_job_commits_nothing(
    fleet, client, gate, eventually
):
    zombie, heir, done, before = await wake_without_the_lease(
        "breakable", fleet, client, gate, eventually
    )

    async def is_refused():
        return await stale_completions(zombie) == 1

    await eventually(is_refused)
    heir.kill()
    [later] = await client.ended(await client.submit("transact", {}))

    assert (JobState.SUCCEEDED, JobState.SUCCEEDED) == (done.state, later.state)
    assert (1, 1) == (before, await written(client, done.id))
    assert 1 == await written(client, later.id), "it works on under its new name"


async def test_without_the_check_of_its_claim_it_does(fleet, client, gate, eventually):
    _, _, done, before = await wake_without_the_lease(
        "without_claim", fleet, client, gate, eventually
    )

    async def is_written_again():
        return await written(client, done.id) == 2

    await eventually(is_written_again)

    assert 1 == before


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_a_worker_frozen_inside_its_transaction_holds_nobody_up(
    fleet, client, gate, eventually
):
    """The server ends its session; on SQLite it would hold the file."""
    zombie = await fleet.serve(BACKBURNER_TRANSACTION_SECONDS="1").ready()
    [job] = await client.submit("stand still", {"gate": str(gate)})
    await eventually(begun(gate))
    zombie.signal(signal.SIGSTOP)
    gate.unlink()
    await fleet.worker().ready()
    [done] = await client.ended([job])
    zombie.signal(signal.SIGCONT)

    async def is_refused():
        return await stale_completions(zombie) == 1

    await eventually(is_refused)

    assert JobState.SUCCEEDED is done.state
    assert 1 == await written(client, job)
