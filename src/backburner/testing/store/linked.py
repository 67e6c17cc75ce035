"""Drives flows and batches for the store tests."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
import pytest

from backburner.domain.events.event import Event
from backburner.domain.groups.batch import Batch, Counts, Members, NewBatch
from backburner.domain.groups.flow import FlowRecord, NewFlow, NewStep
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Claim, Job, JobState, NewJob, Submitted
from backburner.domain.jobs.outcome import Done, Failed, Outcome
from backburner.domain.jobs.transitions import Change
from backburner.ports.store import Store
from backburner.ports.store.events import Topic
from backburner.ports.store.jobs import ClaimRequest, Settlement
from backburner.ports.store.maintenance import JobFilter
from backburner.ports.store.transactions import Tx
from backburner.testing.samples import ANN, NOON, a_new_batch, a_new_flow
from backburner.testing.store.acts import (
    SECOND,
    Refused,
    WithWorkers,
    find,
    move,
    retry,
    settlement,
)

BAD = Failed("BAD", "no", retryable=False)
GOOD = Done("1")
CALLBACK = '{"url":"https://example.com/told"}'
LATER = NOON + 5 * SECOND
"""When a batch is checked, long after its members ended."""


class Hands:
    """A worker that claims all queued jobs and ends them on request."""

    def __init__(self, store: Store, name: str = "token") -> None:
        self.store = store
        self._name = name
        self._claims: dict[str, Claim] = {}
        self._rounds = 0

    async def take(self) -> Mapping[str, Claim]:
        """Claim all queued jobs; return all held jobs by id."""
        self._rounds += 1
        token, claim_requests = (
            f"{self._name}_{self._rounds}",
            [ClaimRequest("default", 1000)],
        )
        for claim in await self.store.claim("w_1", token, claim_requests, now=NOON):
            self._claims[claim.id] = claim
        return self._claims

    async def settlement(
        self, job_id: str, outcome: Outcome, **fields: Any
    ) -> Settlement:
        """Return the settlement of a held or queued job with an outcome."""
        if job_id not in self._claims:
            await self.take()
        claim = self._claims.pop(job_id)
        return settlement(claim, outcome, **fields)

    async def end(
        self, *job_ids: str, outcome: Outcome = GOOD, **fields: Any
    ) -> Sequence[Change | None]:
        """Settle jobs in one call, each with the same outcome."""
        asked = [await self.settlement(j, outcome, **fields) for j in job_ids]
        return await self.store.settle(asked)

    async def end_in_vain(self, job_id: str) -> Settlement:
        """
        Try to settle a job with a stale token, and with a body that raises.

        It still runs afterwards. Return a settlement that would end it.
        """
        claim = (await self.take())[job_id]

        def refuse(_: Tx) -> None:
            raise Refused("no")

        valid = settlement(claim, BAD)
        await self.store.settle([valid._replace(token="stale")])
        with pytest.raises(Refused):
            await self.store.settle([valid._replace(body=refuse)])
        return valid

    async def end_thrice(self, job_id: str) -> None:
        """Fail a job and retry it twice, then settle it successfully."""
        for _ in range(2):
            await self.end(job_id, outcome=BAD)
            await self.store.reopen([retry(await find(self.store, job_id))])
        await self.end(job_id)


class Course:
    """A running flow; its steps are named as they were submitted."""

    def __init__(self, hands: Hands, flow_id: str) -> None:
        self._store = hands.store
        self._hands = hands
        self._id = flow_id

    async def flow(self) -> FlowRecord:
        """Return the flow's current data."""
        return (await self._store.find_flows([self._id]))[0]

    async def jobs(self) -> Mapping[str, Job]:
        """Return the steps' jobs by name."""
        steps = await self._store.steps((await self.flow()).seq)
        return {step.job.step or "": step.job for step in steps}

    async def states(self) -> Mapping[str, JobState]:
        """Return the state of each step."""
        return {name: job.state for name, job in (await self.jobs()).items()}

    async def end(
        self, *names: str, outcome: Outcome = GOOD, **fields: Any
    ) -> Sequence[Change | None]:
        """Settle queued or running steps in one call, each with the same outcome."""
        jobs = await self.jobs()
        ids = [jobs[name].id for name in names]
        return await self._hands.end(*ids, outcome=outcome, **fields)

    async def fail(self, *names: str) -> None:
        """Fail steps permanently, in one call."""
        await self.end(*names, outcome=BAD)

    async def settle(self, outcomes: Mapping[str, Outcome]) -> None:
        """Settle steps in one call, each with its own outcome."""
        jobs = await self.jobs()
        asked = [
            await self._hands.settlement(jobs[name].id, outcome)
            for name, outcome in outcomes.items()
        ]
        await self._store.settle(asked)

    async def move(self, name: str, decide: Callable[[Job], Change]) -> Sequence[bool]:
        """Move a step that is not running."""
        job = (await self.jobs())[name]
        return await self._store.move([move(job, decide(job))])

    async def cancel(self, name: str) -> None:
        """Cancel one step that is not running."""
        await self.move(name, lambda job: transitions.cancel(job, "no", now=NOON))

    async def expire(self, name: str) -> None:
        """Expire one step that is not running."""
        await self.move(name, lambda job: transitions.expire(job, now=NOON))

    async def retry(self, *names: str) -> Sequence[bool]:
        """Retry failed steps by hand, in one call."""
        jobs = await self.jobs()
        return await self._store.reopen([retry(jobs[name]) for name in names])

    async def events(self) -> Sequence[Event]:
        """Return the flow's own events."""
        topic = Topic(flow=(await self.flow()).seq)
        told = (await self._store.stream(ANN, after=0, limit=999, topic=topic)).events
        return [event for event in told if event.subject == self._id]


class Collection:
    """An open batch."""

    def __init__(self, hands: Hands, batch_id: str) -> None:
        self._store = hands.store
        self._hands = hands
        self._id = batch_id

    async def batch(self) -> Batch:
        """Return the batch's current data."""
        return (await self._store.find_batches([self._id]))[0]

    async def seq(self) -> int:
        """Return its key."""
        return (await self.batch()).seq

    async def counts(self) -> Counts:
        """Count its members."""
        return await self._store.count_batch(await self.seq())

    async def fill(
        self, members: Members, *, seal: bool = False
    ) -> Sequence[Submitted]:
        """Add members; return the result of each."""
        return await self._store.fill_batch(await self.seq(), members, seal=seal)

    async def tell(self, *, now: int = LATER) -> bool:
        """Record its progress."""
        return await self._store.tell_batch(await self.seq(), now=now)

    async def finish(self, *then: NewJob, now: int = LATER) -> bool:
        """Finish it, with following jobs, if it is over."""
        seq = await self.seq()
        return await self._store.finish_batch(seq, lambda *_: then, now=now)

    async def cancel(self) -> int:
        """Cancel its unfinished members."""
        change = transitions.cancel_all("no", now=NOON + SECOND)
        return await self._store.cancel_batch(await self.seq(), change)

    async def is_over(self) -> bool:
        """Return whether it is among the batches without unfinished members."""
        return await self.seq() in await self._store.batches_over(limit=99)

    async def events(self) -> Sequence[Event]:
        """Return the batch's own events."""
        topic = Topic(batch=await self.seq())
        return (await self._store.stream(ANN, after=0, limit=999, topic=topic)).events


async def told_of(store: Store, subject: str) -> Sequence[tuple[str, int]]:
    """Return the type and generation of each delivery about a subject."""
    where = JobFilter(tag=f"delivery:{subject}")
    listed = await store.jobs(where, before=None, limit=99)
    found = await store.find([job.id for job in listed])
    told = [orjson.loads(job.input) for job in sorted(found, key=lambda job: job.seq)]
    return [(one["type"], one["generation"]) for one in told]


def adding(flow: int, *steps: NewStep) -> Callable[[Tx], None]:
    """Return a body that adds steps to the flow of the settled step."""
    return lambda tx: tx.extend(flow, steps)


class WithFlows(WithWorkers):
    """Tests of flows and batches."""

    @pytest.fixture
    def hands(self, store: Store) -> Hands:
        """Return the driver of one worker."""
        return Hands(store)

    async def begin(self, hands: Hands, *steps: NewStep, **fields: Any) -> Course:
        """Submit a flow."""
        return (await self.begin_all(hands, a_new_flow(*steps, **fields)))[0]

    async def begin_all(self, hands: Hands, *flows: NewFlow) -> Sequence[Course]:
        """Submit flows in one call."""
        answers = await hands.store.submit_flows(flows)
        return [Course(hands, answer.id) for answer in answers]

    async def open(
        self,
        hands: Hands,
        members: Members,
        batch: NewBatch | None = None,
        **fields: Any,
    ) -> Collection:
        """Open a batch."""
        new = batch or a_new_batch(**fields)
        answer = await hands.store.open_batch(new, members)
        return Collection(hands, answer.id)

    async def state_of(self, store: Store, job_id: str) -> JobState:
        """Return the state of a job."""
        return (await find(store, job_id)).state
