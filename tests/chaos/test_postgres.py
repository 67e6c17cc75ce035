"""A session that holds everybody's rows, while jobs come and go."""

import asyncpg
import pytest

from backburner.clock import SystemClock
from backburner.stores.postgres.examination import OLDEST_TRANSACTION
from tests.chaos.conftest import finished

JOBS = 500
SLOWER = 3.0


@pytest.fixture
def store_url(migrated_url):
    return migrated_url


@pytest.fixture
def drained(client, eventually):
    """Have so many jobs come and go; return how long that took."""

    async def all_are_done():
        return await finished(client) == len(client.ledger.acknowledged)

    async def drained():
        began = SystemClock().monotonic()
        await client.submit("work", *({} for _ in range(JOBS)))
        await eventually(all_are_done)
        return (SystemClock().monotonic() - began) / 1000

    return drained


@pytest.mark.experiment(12)
@pytest.mark.chaos
async def test_an_idle_transaction_slows_claims_little_and_can_be_named(
    fleet, client, store_url, drained, experiment
):
    for _ in range(2):
        await fleet.worker(slots=50).ready()
    await drained()
    usual = await drained()
    holder = await asyncpg.connect(
        store_url, server_settings={"application_name": "forgotten"}
    )
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.execute("SELECT count(*) FROM jobs")
    held = [await drained() for _ in range(4)]
    named = await client.store.transact(
        lambda tx: tx.connection.execute(OLDEST_TRANSACTION).first()
    )
    await holder.close()
    after = await drained()

    experiment.found(
        "the holder is named", named.holder == "forgotten", holder=named.holder
    )
    experiment.found(
        "slower by no more than three times",
        held[-1] <= SLOWER * max(usual, 1.0),
        usual=usual,
        meanwhile=held,
        after=after,
    )
    await experiment.judge(client)
