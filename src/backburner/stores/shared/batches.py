"""Batches on both databases: open, add, count, end, list."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from backburner.domain.errors import BatchNotFound, IllegalTransition
from backburner.domain.events import event
from backburner.domain.groups.batch import (
    PROGRESS_MS,
    Batch,
    BatchState,
    Counts,
    Members,
    NewBatch,
)
from backburner.domain.jobs.job import Instant, NewJob, Submitted
from backburner.domain.webhooks.delivery import Ended
from backburner.ports.store.flows import GroupFilter
from backburner.ports.store.maintenance import Retention
from backburner.stores.shared import flows, groups
from backburner.stores.shared.consequences import InternalTx, deliver
from backburner.stores.shared.settling import KEY_LIFETIME_MS, as_json
from backburner.stores.tables import batches, events
from backburner.stores.tables import flows as flow_table
from backburner.stores.tables import jobs as job_table

b, f, j = batches.c, flow_table.c, job_table.c
IS_OPEN = sa.text("batches.state = 'open'")
COUNT_MEMBERS = sa.text("""
SELECT 'job', state, count(*) FROM jobs
 WHERE batch = :batch AND batch IS NOT NULL AND flow IS NULL GROUP BY state
 UNION ALL
SELECT 'flow', state, count(*) FROM flows
 WHERE batch = :batch AND batch IS NOT NULL GROUP BY state
""")
# In a flow that succeeded with no failed step, all steps did: none has to be read.
COUNT_STEPS = sa.text("""
SELECT state, sum(steps) FROM flows
 WHERE batch = :batch AND batch IS NOT NULL AND state = 'succeeded' AND NOT troubled
   AND steps > 0
 GROUP BY state
 UNION ALL
SELECT jobs.state, count(*) FROM flows JOIN jobs ON jobs.flow = flows.seq
 WHERE flows.batch = :batch AND flows.batch IS NOT NULL AND jobs.flow IS NOT NULL
   AND (flows.state <> 'succeeded' OR troubled)
 GROUP BY jobs.state
""")
# Literals, so that partial indexes are used, and a sign, so that the primary key is
# not; a flow ends with its last step.
OVER = sa.text("""
SELECT seq FROM batches
 WHERE state = 'open' AND sealed AND +seq > :after
   AND NOT EXISTS (SELECT 1 FROM flows
                    WHERE flows.batch = batches.seq AND flows.state = 'running')
   AND NOT EXISTS (SELECT 1 FROM jobs
                    WHERE jobs.batch = batches.seq AND jobs.batch IS NOT NULL
                      AND jobs.flow IS NULL
                      AND jobs.state IN
                          ('blocked','scheduled','waiting','queued','running'))
 ORDER BY +seq LIMIT :limit
""")
Finish = Callable[[Batch, Counts], Sequence[NewJob]]


def open_(batch: NewBatch, members: Members) -> Callable[[InternalTx], Submitted]:
    """Return a body that stores a batch with its members, or returns the old one."""

    def body(tx: InternalTx) -> Submitted:
        [(answer, seq)] = groups.insert(
            tx, batches, [batch], _batch_row, event.BATCH_OPENED
        )
        if seq:
            _put(tx, seq, batch, members, seal=batch.sealed)
        return answer

    return body


def fill(
    batch: int, members: Members, *, seal: bool
) -> Callable[[InternalTx], Sequence[Submitted]]:
    """Return a body that adds members to a batch, within its limits."""

    def body(tx: InternalTx) -> Sequence[Submitted]:
        record = _locked(tx, batch)
        if record is None:
            raise BatchNotFound(
                "the batch does not exist any more: its retention is over"
            )
        takes_no_more = IllegalTransition(f"batch {record.id} accepts no more members")
        if record.sealed and not _may_repeat(members, seal=seal):
            raise takes_no_more
        answers = _put(tx, batch, record, members, seal=seal)
        if record.sealed and not all(answer.replayed for answer in answers):
            raise takes_no_more
        return answers

    return body


def _may_repeat(members: Members, *, seal: bool) -> bool:
    """Return whether the whole request may have been executed before."""
    if not members.size:
        return seal
    return all(job.idempotency_key is not None for job in members.jobs) and all(
        flow.idempotency_key is not None for flow in members.flows
    )


def _put(
    tx: InternalTx, seq: int, batch: NewBatch | Batch, members: Members, *, seal: bool
) -> Sequence[Submitted]:
    for job in members.jobs:
        job.batch = seq
    for flow in members.flows:
        flow.batch = seq
    answers: list[Submitted] = []
    if members.jobs:
        answers += tx.submit(members.jobs)
    if members.flows:
        answers += flows.submit(tx, members.flows)
    is_full = False
    if batch.expected is not None:
        size = count_members(tx.connection, seq).total
        is_full = size == batch.expected
        if size > batch.expected:
            raise IllegalTransition(
                f"batch {batch.id} expects {batch.expected} members; this makes {size}"
            )
    if (seal or is_full) and not batch.sealed:
        sealing = batches.update().where(b.seq == seq)
        tx.connection.execute(sealing.values(sealed=True))
    return answers


def _locked(tx: InternalTx, batch: int) -> Batch | None:
    query = sa.select(batches).where(b.seq == batch).with_for_update()
    row = tx.connection.execute(query).first()
    return None if row is None else _as_batch(row)


def counts(connection: sa.Connection, batch: int) -> Counts:
    """Count a batch's members, and all its jobs, by state."""
    counted = count_members(connection, batch)
    jobs = Counter(counted.jobs)
    for state, count in connection.execute(COUNT_STEPS, {"batch": batch}):
        jobs[state] += count
    return Counts(counted.members, dict(jobs))


def count_members(connection: sa.Connection, batch: int) -> Counts:
    """Count only a batch's members: steps may be many, and flows know their state."""
    members: Counter[str] = Counter()
    jobs: dict[str, int] = {}
    for kind, state, count in connection.execute(COUNT_MEMBERS, {"batch": batch}):
        members[state] += count
        if kind == "job":
            jobs[state] = count
    return Counts(dict(members), jobs)


def over(connection: sa.Connection, after: int, limit: int) -> list[int]:
    """Return open batches that are sealed and have no unfinished members."""
    return list(connection.execute(OVER, {"after": after, "limit": limit}).scalars())


def tell(batch: int, counted: Counts, now: Instant) -> Callable[[InternalTx], bool]:
    """
    Return a body that adds a progress event to a batch if its counts have changed.

    All processes together add at most one per second; the counts never decrease.
    """

    def body(tx: InternalTx) -> bool:
        telling = (
            batches.update()
            .where(b.seq == batch, IS_OPEN, b.told < counted.done)
            .where(b.told_at <= now - PROGRESS_MS)
            .values(told=counted.done, told_at=now, events=b.events + 1)
            .returning(b.events)
        )
        n = tx.connection.execute(telling).scalar()
        if n is not None:
            _note(tx, batch, n, event.BATCH_PROGRESS, now, counted.progress())
        return n is not None

    return body


def finish(batch: int, now: Instant, then: Finish) -> Callable[[InternalTx], bool]:
    """Return a body that finishes a batch if it has no unfinished members."""

    def body(tx: InternalTx) -> bool:
        record = _locked(tx, batch)
        if record is None or record.state is not BatchState.OPEN or not record.sealed:
            return False  # it changed since the caller read it
        counted = counts(tx.connection, batch)
        if not counted.is_over:
            return False
        tx.connection.execute(
            batches.update()
            .where(b.seq == batch)
            .values(
                state=BatchState.FINISHED,
                finished_at=now,
                counts=as_json(counted.told()),
                told=counted.done,
                events=b.events + 1,
            )
        )
        _note(tx, batch, record.events + 1, event.BATCH_FINISHED, now, counted.told())
        jobs = then(record, counted)
        if jobs:
            tx.submit(jobs, capped=False)
        if record.callback is not None:
            deliver(tx, [_ended(record)], now)
        return True

    return body


def _note(
    tx: InternalTx, batch: int, n: int, name: str, at: Instant, data: Mapping[str, Any]
) -> None:
    owner = {
        column.name: sa.select(column).where(b.seq == batch).scalar_subquery()
        for column in (b.tenant, b.user)
    }
    row = {"batch": batch, "n": n, "type": name, "at": at, "data": as_json(data)}
    tx.connection.execute(events.insert().values(row | owner))


def _ended(batch: Batch) -> Ended:
    return Ended(
        batch.id,
        batch.owner.tenant,
        batch.owner.user,
        batch.generation,
        BatchState.FINISHED,
        batch.callback,
        batch.request_id,
        batch.traceparent,
    )


def prune(keep: Retention, now: Instant, limit: int) -> Callable[[InternalTx], None]:
    """Return a body that deletes finished batches after the longest retention."""

    def body(tx: InternalTx) -> None:
        horizon = now - max(keep) // timedelta(milliseconds=1)
        keyed = now - KEY_LIFETIME_MS
        asked = {"horizon": horizon, "keyed": keyed, "n": limit}
        gone = list(tx.connection.execute(_OLD, asked).scalars())
        if gone:
            tx.connection.execute(events.delete().where(events.c.batch.in_(gone)))
            tx.connection.execute(batches.delete().where(b.seq.in_(gone)))

    return body


_OLD = (
    sa.select(b.seq)
    .where(
        b.finished_at <= sa.bindparam("horizon"),
        sa.or_(b.idempotency_key.is_(None), b.created_at < sa.bindparam("keyed")),
    )
    .order_by(b.finished_at)
    .limit(sa.bindparam("n", type_=sa.Integer))
    .with_for_update(skip_locked=True)
)


def find(connection: sa.Connection, ids: Sequence[str]) -> list[Batch]:
    """Return the batches with these ids."""
    rows = connection.execute(sa.select(batches).where(b.id.in_(ids)))
    return [_as_batch(row) for row in rows]


def get(connection: sa.Connection, seqs: Sequence[int]) -> list[Batch]:
    """Return the batches with these keys."""
    rows = connection.execute(sa.select(batches).where(b.seq.in_(seqs)))
    return [_as_batch(row) for row in rows]


def listing(
    connection: sa.Connection, where: GroupFilter, before: int | None, limit: int
) -> list[Batch]:
    """Return a page of batches, newest first."""
    rows = groups.page(
        connection, sa.select(batches), batches, where, limit, before=before
    )
    return [_as_batch(row) for row in rows]


def _batch_row(batch: NewBatch) -> dict[str, Any]:
    return {
        "state": BatchState.OPEN,
        "expected": batch.expected,
        "sealed": batch.sealed,
        "completion": batch.completion,
        "told": 0,
        "told_at": 0,
    }


def _as_batch(row: Any) -> Batch:
    return Batch(
        **groups.fields(row),
        state=BatchState(row.state),
        sealed=bool(row.sealed),
        expected=row.expected,
        completion=row.completion,
        counts=row.counts,
        told=row.told,
    )
