"""Processes killed on every line on which flows, batches and deliveries go on."""

import flowing
import pytest

from backburner import Flow
from backburner.domain.groups.batch import BatchState
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.transitions import Limits
from backburner.engine.submit.submission import LOCAL, GroupOptions
from backburner.ports.store.events import Topic
from backburner.ports.store.maintenance import JobFilter

FILES = 20
CALLBACK = "https://example.com/told"
LINES = [
    "advance.released:2",
    "advance.told:2",
    "settle.before_commit:3",
    "settle.after_commit:3",
    "batch.finishing",
    "batch.finished",
]
MANY = {"BACKBURNER_CRASH_LIMIT": "1000"}


def a_file(number):
    flow = Flow()
    flow.add(flowing.extract >> flowing.chunk >> flowing.embed, number)
    return flow


class Files:
    """A batch of files, and what the store says of it."""

    def __init__(self, client):
        self.engine = client.engine
        self._ledger = client.ledger
        for found in flowing.own:
            self.engine.registry.add(found)

    async def open(self):
        """Open a batch of flows; put some beside it."""
        told = GroupOptions(callback=CALLBACK)
        alone = await self.engine.flows.submit([(a_file(n), told) for n in range(5)])
        members = self.engine.batches.members(
            flows=[(a_file(number), told) for number in range(FILES)]
        )
        batch = await self.engine.batches.open(
            told, members, completion={"capability": "follow"}
        )
        self._ledger.acknowledged += [answer.id for answer in (*alone, batch)]
        return batch.id

    async def is_over(self):
        """Say whether nothing is left to do."""
        batches = await self.engine.store.batches_over(limit=1)
        return not batches and not await self.engine.store.depths()

    async def stands_still(self):
        """Say whether nothing more will happen."""
        depths = await self.engine.store.depths()
        return {JobState.BLOCKED} >= {state for _, state, _, _ in depths}

    async def effective(self):
        """Note whose effects are to be counted."""
        jobs = await self.engine.jobs(JobFilter(capability="extract"), limit=999)
        self._ledger.effective += [job.id for job in jobs]


@pytest.fixture
def files(client):
    return Files(client)


async def test_a_batch_of_flows_ends_once_whatever_line_its_processes_die_on(
    fleet, client, files, eventually
):
    batch_id = await files.open()
    codes = [
        await fleet.worker("flowing", slots=4, BACKBURNER_FAULT=line, **MANY).ended()
        for line in LINES
    ]
    fleet.worker("flowing", **MANY)
    await eventually(files.is_over)
    await files.effective()
    batch = await files.engine.batches.find(batch_id)
    told = (
        await files.engine.store.stream(
            LOCAL, after=0, limit=99, topic=Topic(batch=batch.seq)
        )
    ).events
    followed = await files.engine.jobs(JobFilter(capability="follow"))
    counts = await files.engine.batches.counts(batch)

    assert [137] * len(LINES) == codes
    assert (BatchState.FINISHED, 0) == (batch.state, batch.generation)
    assert {"succeeded": FILES} == counts["members"]
    assert {"succeeded": 3 * FILES + FILES // 5} == counts["jobs"]
    assert 1 == [event.type for event in told].count("batch.finished")
    assert [JobState.SUCCEEDED] == [job.state for job in followed]
    assert [] == await client.audit(Limits(crashes=1000))


@pytest.mark.thorough
async def test_without_one_transaction_a_flow_hangs(fleet, client, files, eventually):
    await files.open()
    line = "advance.released:2"
    code = await fleet.worker("advances_later", BACKBURNER_FAULT=line).ended()
    fleet.worker("flowing")
    await eventually(files.stands_still)

    assert 137 == code
    assert {"I9"} <= {breach.invariant for breach in await client.audit()}
