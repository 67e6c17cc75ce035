"""Helpers of the store tests."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import orjson
import pytest
import sqlalchemy as sa

from backburner.domain.events import event
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import Claim, Job
from backburner.domain.jobs.outcome import Failed, Outcome
from backburner.domain.jobs.transitions import Change, Limits
from backburner.ports.store import Store
from backburner.ports.store.events import Note
from backburner.ports.store.jobs import ClaimRequest, Move, Settlement
from backburner.ports.store.maintenance import Retention
from backburner.ports.store.transactions import Tx
from backburner.ports.store.workers import Vitals, WorkerInfo
from backburner.testing.samples import NOON, a_new_job

LetPass: TypeAlias = Callable[[timedelta], None]

SECOND = 1_000
DAY = 86_400_000
LEASE = timedelta(seconds=10)
VITALS = Vitals(running=3, lag_ms=40, memory=2**33)
WEEK = timedelta(days=7)
NO_RETENTION = Retention(timedelta(), timedelta(), timedelta())

notes = sa.Table(
    "conformance_notes", sa.MetaData(), sa.Column("text", sa.Text, nullable=False)
)


class Refused(Exception):
    """The error that transaction bodies of these tests raise."""


def write(text: str) -> Callable[[Tx], None]:
    """Return a body that writes a note."""

    def body(tx: Tx) -> None:
        tx.connection.execute(notes.insert(), {"text": text})

    return body


def write_and_refuse(text: str) -> Callable[[Tx], None]:
    """Return a body that writes a note and then fails."""

    def body(tx: Tx) -> None:
        write(text)(tx)
        raise Refused(text)

    return body


async def written(store: Store) -> Sequence[str]:
    """Return the committed notes."""
    found: Sequence[str] = await store.transact(
        lambda tx: tx.connection.execute(sa.select(notes.c.text)).scalars().all()
    )
    return found


async def submit(store: Store, **fields: Any) -> str:
    """Store one job and return its id."""
    return (await store.submit([a_new_job(**fields)]))[0].id


async def find(store: Store, job_id: str) -> Job:
    """Return one job."""
    return (await store.find([job_id]))[0]


async def types(store: Store, job_id: str) -> Sequence[str]:
    """Return the types of a job's events."""
    return [e.type for e in await store.history(job_id, after=0, limit=100)]


def settlement(claim: Claim, outcome: Outcome, **fields: Any) -> Settlement:
    """Return a claim's settlement with an outcome, a second after noon."""
    usual: Any = {"consequences": claim.consequences, "epoch": claim.events}
    change = transitions.settle(
        claim,
        outcome,
        now=NOON + SECOND,
        backoff=timedelta(seconds=5),
        limits=Limits(),
    )
    return Settlement(claim.seq, claim.token, change, **usual | fields)


def progress(claim: Claim, **fields: Any) -> Note:
    """Return a progress note of a half-finished run, its first event."""
    n = claim.events + 1
    usual = Note(claim.seq, claim.token, n, NOON, event.PROGRESS, '{"done":1}')
    return usual._replace(**fields)


def text(claim: Claim, said: str, **fields: Any) -> Note:
    """Return a text note of a claim's run, its first event."""
    data = orjson.dumps({"epoch": claim.events, "offset": 0, "text": said}).decode()
    return progress(claim, type=event.DELTA, data=data, **fields)


def move(job: Job, change: Change) -> Move:
    """Return a move of a job that has not changed since it was read."""
    return Move(job.seq, job.state, job.generation, change, job.consequences)


def retry(job: Job) -> Move:
    """Return a retry by hand."""
    return move(job, transitions.retry(job, now=NOON + 2 * SECOND))


class WithWorkers:
    """Tests that claim jobs."""

    @pytest.fixture(autouse=True)
    async def _workers(self, store: Store) -> None:
        for name in ("w_1", "w_2"):
            await store.enlist(
                WorkerInfo(
                    id=name,
                    host="here",
                    pid=1,
                    slots=8,
                    queues=("default", "other"),
                    started_at=NOON,
                )
            )

    async def claim(
        self, store: Store, limit: int = 1, *, worker: str = "w_1", token: str = "t1"
    ) -> Sequence[Claim]:
        """Claim jobs from the default queue."""
        return await store.claim(
            worker, token, [ClaimRequest("default", limit)], now=NOON
        )

    async def claimed(self, store: Store, **fields: Any) -> Claim:
        """Submit a job and claim it."""
        await submit(store, **fields)
        return (await self.claim(store))[0]

    async def failed(self, store: Store, **fields: Any) -> Job:
        """Return a dead letter."""
        claim = await self.claimed(store, **fields)
        outcome = Failed("BAD", "no", retryable=False)
        await store.settle([settlement(claim, outcome)])
        return await find(store, claim.id)
