"""Results of steps within handlers, on both databases."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import sqlalchemy as sa

from backburner.domain.costs.usage import RunUsage
from backburner.domain.events.event import FORKED
from backburner.domain.jobs.job import NewJob, Submitted
from backburner.domain.jobs.step import StepResult, StoredStep
from backburner.ports.store.keys import AuditEntry
from backburner.stores.shared import keys
from backburner.stores.shared.access import Access
from backburner.stores.shared.usages import BookTx, book_calls
from backburner.stores.tables import events, jobs, step_results, waits

T = TypeVar("T")
s = step_results.c


class StepTx(BookTx, Protocol):
    """A transaction of either database."""

    def save_steps(self, results: Sequence[StepResult]) -> Sequence[Any]:
        """Store results of jobs that are still held; return their jobs and keys."""
        ...


class Steps(Access, Protocol):
    """The operations of `StepStore`, on both databases."""

    async def internal_transaction(self, body: Callable[[Any], T]) -> T:
        """Run a body in its own durable transaction."""
        ...

    async def save_plain_steps(self, results: Sequence[StepResult]) -> Sequence[bool]:
        """Store results without usage, together with those of concurrent calls."""
        ...

    async def save_steps(
        self, results: Sequence[StepResult], bookings: Sequence[RunUsage] = ()
    ) -> Sequence[bool]:
        if not bookings:
            return await self.save_plain_steps(results)
        return await self.internal_transaction(lambda tx: _save(tx, results, bookings))

    async def steps_of(
        self, job: int, *, most: int | None = None
    ) -> Sequence[StoredStep]:
        size = sa.func.length(s.result)
        shown = (
            s.result if most is None else sa.case((size <= most, s.result), else_="")
        )
        fields = (s.key, s.kind, s.name, s.epoch, s.at, shown, size)
        begun = (s.expected, s.is_open, s.doubts, s.is_concurrent, s.duration_ms)
        query = sa.select(*fields, *begun).where(s.job == job).order_by(s.seq)
        return await self.read(lambda c: [*map(StoredStep._make, c.execute(query))])

    async def forget_step(self, job: int, token: str, key: str) -> bool:
        return await self.internal_transaction(
            lambda tx: _forget_one(tx, job, token, key)
        )

    async def submit_fork(
        self,
        job: NewJob,
        results: Sequence[StepResult],
        event: str,
        entries: Sequence[AuditEntry] = (),
    ) -> Submitted:
        body = partial(_fork, job=job, results=results, event=event)
        return await self.internal_transaction(keys.recorded(body, entries))

    async def withdraw_step(self, job: int, token: str, key: str) -> bool:
        return await self.internal_transaction(
            lambda tx: _withdraw(tx, job, token, key)
        )


def kept(results: Sequence[StepResult], rows: Iterable[Any]) -> list[bool]:
    """Return for each result whether it is among the returned jobs and keys."""
    stored = {(row[0], row[1]) for row in rows}
    return [(result.job, result.key) in stored for result in results]


def delete_of(connection: sa.Connection, seqs: Any) -> None:
    """Delete the results, waits and signals of jobs."""
    connection.execute(step_results.delete().where(s.job.in_(seqs)))
    connection.execute(waits.delete().where(waits.c.job.in_(seqs)))


def _save(
    tx: StepTx, results: Sequence[StepResult], bookings: Sequence[RunUsage]
) -> list[bool]:
    tx.lock_booked([booking.seq for booking in bookings])
    stored = kept(results, tx.save_steps(results))
    tx.hit("step.saved")
    book_calls(tx, bookings)
    return stored


def _held(tx: Any, *where: Any) -> bool:
    row = sa.select(jobs.c.seq).where(*where).with_for_update()
    return tx.connection.execute(row).first() is not None


def _forget_one(tx: Any, job: int, token: str, key: str) -> bool:
    if not _held(tx, jobs.c.seq == job, jobs.c.token == token):
        return False
    tx.connection.execute(step_results.delete().where(s.job == job, s.key == key))
    tx.hit("step.forgotten")
    return True


def _fork(tx: Any, job: NewJob, results: Sequence[StepResult], event: str) -> Submitted:
    [submitted] = tx.submit([job])
    query = sa.select(jobs.c.seq, jobs.c.events).where(jobs.c.id == job.id)
    seq, last = tx.connection.execute(query).one()
    # A first run reads results only if the job has more events than a new one.
    forked = {"job": seq, "n": last + 1, "type": FORKED, "at": job.created_at}
    whose = {"tenant": job.owner.tenant, "user": job.owner.user}
    tx.connection.execute(events.insert().values(**forked, data=event, **whose))
    change = jobs.update().where(jobs.c.seq == seq)
    tx.connection.execute(change.values(events=last + 1))
    if results:
        rows = [{**r._asdict(), "job": seq} for r in results]
        for row in rows:
            del row["token"]
        tx.connection.execute(step_results.insert(), rows)
    tx.hit("step.forked")
    return cast("Submitted", submitted)


def _withdraw(tx: Any, job: int, token: str, key: str) -> bool:
    if not _held(tx, jobs.c.seq == job, jobs.c.token == token):
        return False
    begun = s.job == job, s.key == key, s.result == ""
    # Doubts from earlier runs are kept.
    tx.connection.execute(step_results.delete().where(*begun, s.doubts == 0))
    tx.connection.execute(step_results.update().where(*begun).values(is_open=False))
    tx.hit("step.withdrawn")
    return True
