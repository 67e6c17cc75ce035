"""Workers that are killed or stopped under a load of jobs with settlement bodies."""

import asyncio
import signal

import pytest
import sqlalchemy as sa
from breakable import PAID

from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.transitions import Limits
from backburner.stores.tables import events, jobs, usages
from tests.faults.conftest import eventually

SLOTS = 20
MANY = {"BACKBURNER_CRASH_LIMIT": "1000", "BACKBURNER_GRACE_SECONDS": "30"}
SIZES = [
    pytest.param(1_000, 3, id="few"),
    pytest.param(10_000, 20, id="many", marks=pytest.mark.chaos),
]
RUNNING = (
    sa.select(sa.func.count())
    .where(jobs.c.state == "running")
    .group_by(jobs.c.worker)
    .order_by(sa.func.count().desc())
)
STARTED = sa.select(sa.func.count()).where(events.c.type == "job.started")
TOKENS = sa.select(sa.func.sum(usages.c.input_tokens + usages.c.output_tokens))


class Load:
    """Jobs that each pay for a call, and what is seen of them meanwhile."""

    def __init__(self, client, journal, count):
        self.client = client
        self.journal = journal
        self.count = count
        self.most = 0
        """The most jobs that one worker was seen to hold."""
        self._ended = None
        self._looking = None

    async def begin(self):
        bill = {"journal": str(self.journal)}
        ids = []
        for _ in range(0, self.count, 500):
            ids += await self.client.submit("pay", *[bill] * 500)
        self._ended = asyncio.ensure_future(self.client.ended(ids, within=300))
        self._looking = asyncio.ensure_future(self._look())

    async def progress(self, share):
        """Wait until so much of the load was paid for."""

        async def is_so():
            return self.paid >= share * self.count or self._ended.done()

        await eventually(is_so)

    async def end(self):
        ended = await self._ended
        self._looking.cancel()
        return ended

    @property
    def paid(self):
        return self.journal.read_text().count("\n") if self.journal.exists() else 0

    async def ask(self, query):
        return await self.client.store.read(lambda c: c.execute(query).scalar())

    async def _look(self):
        while True:
            self.most = max(self.most, await self.ask(RUNNING) or 0)
            await asyncio.sleep(0.005)  # noqa: TID251 - nobody tells of it


@pytest.fixture
def store_url(migrated_url):
    return migrated_url


@pytest.fixture
def load(client, tmp_path):
    return lambda count: Load(client, tmp_path / "journal", count)


@pytest.mark.parametrize(("count", "kills"), SIZES)
async def test_a_killed_worker_repeats_and_forgets_no_more_than_it_has_slots(
    fleet, client, load, count, kills
):
    paying = load(count)
    await paying.begin()
    for kill in range(1, kills + 1):
        worker = await fleet.worker(slots=SLOTS, **MANY).ready()
        await paying.progress(kill / (kills + 1))
        worker.kill()
    fleet.worker(slots=SLOTS, **MANY)
    ended = await paying.end()
    repeated = await paying.ask(STARTED) - count
    forgotten = paying.paid - await paying.ask(TOKENS) / PAID
    print(f"most held {paying.most}, repeated {repeated}, unbooked {forgotten:.0f}")

    assert {JobState.SUCCEEDED} == {job.state for job in ended}
    assert 0 < paying.most <= SLOTS
    assert repeated <= kills * SLOTS
    assert 0 <= forgotten <= kills * SLOTS
    assert [] == await client.audit(Limits(crashes=1000))


@pytest.mark.parametrize(
    ("count", "restarts"),
    [
        pytest.param(1_000, 2, id="few"),
        pytest.param(10_000, 6, id="many", marks=pytest.mark.chaos),
    ],
)
async def test_a_worker_that_is_restarted_under_load_loses_no_job(
    fleet, client, load, count, restarts
):
    paying, codes = load(count), []
    await paying.begin()
    for restart in range(1, restarts + 1):
        worker = await fleet.worker(slots=SLOTS, **MANY).ready()
        await paying.progress(restart / (restarts + 1))
        worker.signal(signal.SIGTERM)
        codes.append(await worker.ended())
    fleet.worker(slots=SLOTS, **MANY)
    ended = await paying.end()
    print(f"exit codes {codes}, most held {paying.most}")

    assert [0] * restarts == codes
    assert {(JobState.SUCCEEDED, 0)} == {(job.state, job.crashes) for job in ended}
    assert count == await paying.ask(STARTED)
    assert count * PAID == await paying.ask(TOKENS)
    assert [] == await client.audit()
