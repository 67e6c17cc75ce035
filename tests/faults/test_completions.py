"""Processes killed between the end of a job and its completion."""

from datetime import UTC, datetime, timedelta

import flowing
import pytest

from backburner.domain.jobs.completion import TAG
from backburner.domain.jobs.transitions import Limits
from backburner.ports.store.maintenance import JobFilter

COMPLETION = {"capability": "note"}
LINES = [
    "ended.followed:2",
    "advance.told:2",
    "settle.before_commit:2",
    "settle.after_commit:2",
]
ANGRY = {"progress": "p", "streamed": "s", "error": "no"}
MANY = {"BACKBURNER_CRASH_LIMIT": "1000"}


class Followed:
    """Jobs with completions, and what the store says of them."""

    def __init__(self, client):
        self._client = client
        for found in flowing.own:
            client.engine.registry.add(found)

    async def submit(self, name, *values, **options):
        return await self._client.submit(
            name, *values, completion=COMPLETION, **options
        )

    async def is_over(self):
        return not await self._client.store.depths()

    async def outputs(self, ids):
        """Return what the completions of each job came to."""
        found = []
        for job_id in ids:
            where = JobFilter(tag=f"{TAG}{job_id}")
            listed = await self._client.engine.jobs(where, limit=9)
            jobs = await self._client.store.find([job.id for job in listed])
            found.append([job.output for job in jobs])
        return found


@pytest.fixture
def followed(client):
    return Followed(client)


async def test_a_job_has_one_completion_whatever_line_its_worker_dies_on(
    fleet, client, followed, eventually
):
    good = await followed.submit("work", *[{"seconds": 0.01}] * 12)
    bad = await followed.submit("shout", *[ANGRY] * 4)
    codes = [
        await fleet.worker("flowing", slots=2, BACKBURNER_FAULT=line, **MANY).ended()
        for line in LINES
    ]
    fleet.worker("flowing", **MANY)
    await eventually(followed.is_over)

    assert [137] * len(LINES) == codes
    assert [['"succeeded"']] * 12 == await followed.outputs(good)
    assert [['"failed"']] * 4 == await followed.outputs(bad)
    assert [] == await client.audit(Limits(crashes=1000))


async def test_a_job_that_others_end_has_one_completion_though_they_die(
    fleet, client, followed, eventually
):
    once = {"BACKBURNER_CRASH_LIMIT": "1"}
    fault = {"BACKBURNER_FAULT": "ended.followed"}
    poison = await followed.submit("crash", None)
    codes = [await fleet.worker("flowing", **once).ended()]
    codes.append(await fleet.worker("flowing", **once, **fault).ended())
    worker = fleet.worker("flowing", **once)
    await eventually(followed.is_over)
    worker.kill()
    late = await followed.submit("work", {}, start_by=datetime(2020, 1, 1, tzinfo=UTC))
    codes.append(await fleet.worker("flowing", **fault).ended())
    fleet.worker("flowing")
    await eventually(followed.is_over)
    waiting = await followed.submit("work", {}, delay=timedelta(hours=1))
    await client.engine.cancel(waiting[0])
    await eventually(followed.is_over)
    client.ledger.effective.clear()

    assert [139, 137, 137] == codes
    ended = await followed.outputs([*poison, *late, *waiting])
    assert [['"failed"'], ['"failed"'], ['"cancelled"']] == ended
    assert [] == await client.audit()


async def test_without_one_transaction_a_completion_is_missing(
    fleet, client, followed, eventually
):
    await followed.submit("work", *[{}] * 3)
    line = "ended.followed"
    code = await fleet.worker("advances_later", BACKBURNER_FAULT=line).ended()
    fleet.worker("flowing")
    await eventually(followed.is_over)

    assert 137 == code
    assert {"I11"} <= {breach.invariant for breach in await client.audit()}
