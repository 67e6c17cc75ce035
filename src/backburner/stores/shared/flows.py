"""Flows on both databases: stores, cancels, deletes and lists them."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Any, NamedTuple

import orjson
import sqlalchemy as sa

from backburner.domain.events import event
from backburner.domain.groups.flow import (
    Edge,
    FlowRecord,
    FlowState,
    NewFlow,
    NewStep,
    refused,
)
from backburner.domain.groups.graph import OutlinedStep
from backburner.domain.jobs.job import Instant, JobState, Need, Submitted
from backburner.domain.jobs.transitions import Change
from backburner.domain.webhooks.delivery import Ended
from backburner.ports.store.flows import FlowStep, GroupFilter
from backburner.ports.store.maintenance import Retention
from backburner.stores.shared import groups
from backburner.stores.shared.consequences import (
    InternalTx,
    callers_of,
    conclude,
    deliver,
    over,
)
from backburner.stores.shared.ledger import close
from backburner.stores.shared.rows import LISTED_COLUMNS, as_listed
from backburner.stores.shared.settling import KEY_LIFETIME_MS, error_json, event_json
from backburner.stores.shared.sharing import forgo
from backburner.stores.shared.steps import delete_of
from backburner.stores.shared.totals import count_ends
from backburner.stores.tables import batches, edges, events, flows
from backburner.stores.tables import jobs as job_table

c, e, f = job_table.c, edges.c, flows.c
BATCH_ID = (
    sa.select(batches.c.id)
    .where(batches.c.seq == f.batch)
    .scalar_subquery()
    .label("batch_id")
)
LIVE = sa.text("jobs.state IN ('blocked','scheduled','waiting','queued','running')")


def submit(tx: InternalTx, wanted: Sequence[NewFlow]) -> list[Submitted]:
    """Store flows and their steps, or return those with the same idempotency keys."""
    answers = groups.insert(tx, flows, wanted, _flow_row, event.FLOW_STARTED)
    new = [(flow, seq) for flow, (_, seq) in zip(wanted, answers, strict=True) if seq]
    for flow, seq in new:
        for step in flow.steps:
            if step.before:
                raise refused(step.job.step or "", "`before` names no existing step")
            step.job.flow = seq
            step.job.batch = flow.batch
            step.job.needs = step.job.open = len(needs_of(step))
    _insert_steps(tx, [flow.steps for flow, _ in new])
    empty = {seq: 0 for flow, seq in new if not flow.steps}
    if empty:
        at = max(flow.created_at for flow in wanted)
        deliver(tx, over(tx, empty, at), at)
    return [answer for answer, _ in answers]


def _insert_steps(tx: InternalTx, many: Sequence[Sequence[NewStep]]) -> list[int]:
    """Store steps that depend only on each other."""
    seqs = tx.insert([step.job for steps in many for step in steps])
    numbers = iter(seqs)
    rows: list[tuple[int, int, bool]] = []
    for steps in many:
        known: dict[str, int] = {}
        for step in steps:
            here = known[step.job.step or ""] = next(numbers)
            needs = needs_of(step)
            rows += [(known[edge.step], here, edge.continues) for edge in needs]
    tx.connect(rows)
    return seqs


def needs_of(step: NewStep) -> list[Edge]:
    """Return each prerequisite once; it must succeed if any of its edges says so."""
    continues: dict[str, bool] = {}
    for edge in step.needs:
        continues[edge.step] = continues.get(edge.step, True) and edge.continues
    return [Edge(name, is_lax) for name, is_lax in continues.items()]


def add_active(tx: InternalTx, flow: int, more: int) -> None:
    """Increase the number of steps that are neither blocked nor ended."""
    if more:
        _count(tx, flow, active=f.active + more)


def add_steps(tx: InternalTx, flow: int, more: int) -> None:
    """Increase the number of steps of a flow."""
    _count(tx, flow, steps=f.steps + more)


def _count(tx: InternalTx, flow: int, **counts: sa.ColumnElement[int]) -> None:
    tx.connection.execute(flows.update().where(f.seq == flow).values(**counts))


def calling(tx: InternalTx, seqs: Collection[int]) -> list[Ended]:
    """Return the ends of flows that have a callback."""
    if not seqs:
        return []
    columns = [f[name] for name in Ended._fields if name != "result"]
    query = sa.select(*columns).where(f.seq.in_(seqs)).order_by(f.seq)
    return [Ended(*row) for row in tx.connection.execute(query)]


def cancel(change: Change, *, flow: int) -> Callable[[InternalTx], int]:
    """Return a body that cancels all steps of a flow that have not ended."""
    return lambda tx: _cancel(tx, c.flow == flow, change, [flow])


class Cut(NamedTuple):
    """The result of cancelling part of a batch."""

    ended: int
    is_last: bool


def cancel_some(
    change: Change, *, batch: int, limit: int
) -> Callable[[InternalTx], Cut]:
    """
    Return a body that seals a batch and cancels about `limit` of its jobs.

    Each flow is cancelled as a whole, so a crash leaves none half cancelled.
    """

    def body(tx: InternalTx) -> Cut:
        sealing = batches.update().where(batches.c.seq == batch)
        tx.connection.execute(sealing.values(sealed=True))
        alone = sa.select(c.seq).where(
            c.batch == batch, c.batch.is_not(None), c.flow.is_(None), LIVE
        )
        query = alone.order_by(c.seq).limit(limit)
        jobs = tx.connection.execute(query).scalars().all()
        chosen, is_last = _flows_to_end(tx, batch, limit - len(jobs))
        mine = sa.or_(c.seq.in_(jobs), c.flow.in_(chosen))
        return Cut(_cancel(tx, mine, change, chosen), is_last)

    return body


def _flows_to_end(tx: InternalTx, batch: int, room: int) -> tuple[list[int], bool]:
    """Return flows of a batch with about `room` steps, and whether these are all."""
    if room <= 0:
        return [], False
    unfinished = sa.exists().where(c.flow == f.seq, LIVE)
    query = sa.select(f.seq, f.steps).where(f.batch == batch, unfinished)
    rows = tx.connection.execute(query.order_by(f.seq).limit(room)).all()
    before = accumulate((steps for _, steps in rows), initial=0)
    chosen = [
        seq for (seq, _), steps in zip(rows, before, strict=False) if steps < room
    ]
    return chosen, len(chosen) == len(rows) < room


def _cancel(
    tx: InternalTx,
    mine: sa.ColumnElement[bool],
    change: Change,
    chosen: Collection[int],
) -> int:
    # First, so that no step is added to these flows before this is committed.
    tx.lock_groups(flows=chosen)
    query = sa.select(c.seq, c.flow, c.state, c.queue).where(mine, LIVE)
    rows = tx.connection.execute(query.order_by(c.seq).with_for_update()).all()
    seqs = [row.seq for row in rows]
    left: Counter[int] = Counter()
    if rows:
        _end(tx, seqs, change)
        count_ends(tx, [(row.queue, change.to) for row in rows])
        forgo(tx, [seq for seq, _, state, _ in rows if state != JobState.RUNNING])
        for _, number, state, _ in rows:
            if number is not None:
                left[number] += state != JobState.BLOCKED
    ended = callers_of(tx, seqs) + conclude(tx, left, left, change.at)
    deliver(tx, ended, change.at)
    close(tx, dict.fromkeys(seqs, False))
    return len(seqs)


_END = sa.text("""
UPDATE jobs
   SET state = 'cancelled', token = NULL, worker = NULL, error = :error,
       error_code = :code, fingerprint = NULL, finished_at = :at, open = 0,
       events = events + 1
 WHERE seq = :seq
""")


def _end(tx: InternalTx, seqs: Sequence[int], change: Change) -> None:
    code = change.error.code if change.error else None
    shared = {"error": error_json(change), "code": code, "at": change.at}
    tx.connection.execute(_END, [{"seq": seq, **shared} for seq in seqs])
    data = event_json(change)
    tx.tell([(seq, change.event, change.at, data) for seq in seqs])


def prune(
    keep: Retention, now: Instant, limit: int
) -> Callable[[InternalTx], Sequence[str]]:
    """Return a body that deletes ended flows with their steps after their retention."""

    def body(tx: InternalTx) -> Sequence[str]:
        gone: list[int] = []
        for state, span in zip(Retention._fields, keep, strict=True):
            horizon = now - span // timedelta(milliseconds=1)
            keyed = now - KEY_LIFETIME_MS
            asked = {"state": state, "horizon": horizon, "keyed": keyed, "n": limit}
            gone += tx.connection.execute(_OLD, asked).scalars()
        return delete_some(tx, gone, limit)

    return body


def delete_some(tx: InternalTx, gone: Sequence[int], limit: int) -> Sequence[str]:
    """Delete about `limit` flows with their steps; return the ids of the steps."""
    return delete(tx, _enough(tx, gone, limit)) if gone else ()


_OLD = (
    sa.select(f.seq)
    .where(f.state == sa.bindparam("state"), f.finished_at <= sa.bindparam("horizon"))
    .where(f.kept.is_(None))
    .where(
        sa.or_(f.idempotency_key.is_(None), f.created_at < sa.bindparam("keyed")),
        ~groups.in_batch(f.batch),
    )
    .order_by(f.finished_at)
    .limit(sa.bindparam("n", type_=sa.Integer))
    .with_for_update(skip_locked=True)
)


def _enough(tx: InternalTx, gone: Sequence[int], limit: int) -> list[int]:
    """Return flows up to the limit of steps per transaction, at least one."""
    counting = sa.select(c.flow, sa.func.count()).where(c.flow.in_(gone))
    rows = tx.connection.execute(counting.group_by(c.flow))
    sizes = {flow: int(size) for flow, size in rows}
    before = accumulate((sizes.get(seq, 0) for seq in gone), initial=0)
    return [seq for seq, steps in zip(gone, before, strict=False) if steps < limit]


def delete(tx: InternalTx, gone: Sequence[int]) -> Sequence[str]:
    """Delete locked flows with their steps; return the ids of the steps."""
    run = tx.connection.execute
    ids = run(sa.select(c.id).where(c.flow.in_(gone))).scalars().all()
    # By flow, because there may be more steps than a statement can have parameters.
    seqs = sa.select(c.seq).where(c.flow.in_(gone))
    run(events.delete().where(events.c.job.in_(seqs)))
    delete_of(tx.connection, seqs)
    run(events.delete().where(events.c.flow.in_(gone)))
    run(edges.delete().where(e.dependent.in_(seqs)))
    run(job_table.delete().where(c.flow.in_(gone)))
    run(flows.delete().where(f.seq.in_(gone)))
    return ids


def find(connection: sa.Connection, ids: Sequence[str]) -> list[FlowRecord]:
    """Return the flows with these ids."""
    rows = connection.execute(sa.select(flows, BATCH_ID).where(f.id.in_(ids)))
    return [_as_flow(row) for row in rows]


def listing(
    connection: sa.Connection, where: GroupFilter, before: int | None, limit: int
) -> list[FlowRecord]:
    """Return a page of flows, newest first."""
    query = sa.select(flows, BATCH_ID)
    if where.batch is not None:
        query = query.where(f.batch == where.batch)
    rows = groups.page(connection, query, flows, where, limit, before=before)
    return [_as_flow(row) for row in rows]


def steps(connection: sa.Connection, flow: int) -> list[FlowStep]:
    """Return the steps of a flow in order, without inputs and outputs."""
    query = sa.select(*LISTED_COLUMNS).where(c.flow == flow).order_by(c.seq)
    step_jobs = [as_listed(row) for row in connection.execute(query)]
    names = {job.seq: job.step or "" for job in step_jobs}
    needs: dict[int, list[Edge]] = {}
    joined = sa.select(e.dependent, e.prerequisite, e.continues).join(
        job_table, c.seq == e.dependent
    )
    rows = connection.execute(
        joined.where(c.flow == flow).order_by(e.dependent, e.prerequisite)
    )
    for dependent, prerequisite, continues in rows:
        edge = Edge(names.get(prerequisite, ""), bool(continues))
        needs.setdefault(dependent, []).append(edge)
    return [FlowStep(job, tuple(needs.get(job.seq, ()))) for job in step_jobs]


def outline(connection: sa.Connection, flow: int, *, needs: bool) -> list[OutlinedStep]:
    """Return the steps of a flow in order, in short."""
    needed: dict[int, list[tuple[int, bool]]] = {}
    if needs:
        of_flow = sa.select(c.seq).where(c.flow == flow)
        read = sa.select(e.dependent, e.prerequisite, e.continues)
        read = read.where(e.dependent.in_(of_flow))
        for dependent, prerequisite, continues in connection.execute(read):
            needed.setdefault(dependent, []).append((prerequisite, bool(continues)))
    query = sa.select(c.seq, c.capability, c.state).where(c.flow == flow)
    return [
        OutlinedStep(seq, capability, state, needed.get(seq, ()))
        for seq, capability, state in connection.execute(query.order_by(c.seq))
    ]


def some_steps(
    connection: sa.Connection, flow: int, seqs: Sequence[int]
) -> list[FlowStep]:
    """Return some steps of a flow in order, without inputs and outputs."""
    query = sa.select(*LISTED_COLUMNS).where(c.seq.in_(seqs), c.flow == flow)
    found = [as_listed(row) for row in connection.execute(query.order_by(c.seq))]
    joined = sa.select(e.dependent, c.step, e.continues).join(
        job_table, c.seq == e.prerequisite
    )
    needs: dict[int, list[Edge]] = {}
    rows = connection.execute(
        joined.where(e.dependent.in_([job.seq for job in found])).order_by(
            e.dependent, e.prerequisite
        )
    )
    for dependent, name, continues in rows:
        needs.setdefault(dependent, []).append(Edge(name or "", bool(continues)))
    return [FlowStep(job, tuple(needs.get(job.seq, ()))) for job in found]


def as_needs(rows: Iterable[Any]) -> dict[int, list[Need]]:
    """Return the results of prerequisites, by the dependent step's key."""
    needs: dict[int, list[Need]] = {}
    for dependent, step, job_id, state, output, error in rows:
        problem = orjson.loads(error) if error else None
        need = Need(step, job_id, JobState(state), output, problem)
        needs.setdefault(dependent, []).append(need)
    return needs


def _flow_row(flow: NewFlow) -> dict[str, Any]:
    return {
        "state": FlowState.RUNNING,
        "batch": flow.batch,
        "deadline": flow.deadline,
        "active": sum(not step.needs for step in flow.steps),
        "troubled": False,
        "steps": len(flow.steps),
        "kept": kept_together(flow),
    }


MOST_QUEUES = 1_000
"""The maximum total length of the names of a flow's queues with own retention."""


def kept_together(flow: NewFlow) -> str | None:
    """Return the queues that determine a flow's retention; `None` if none does."""
    jobs = [step.job for step in flow.steps]
    if flow.batch is not None or not any(job.kept for job in jobs):
        return None
    names = sorted({job.queue for job in jobs})
    has_key = "" if flow.idempotency_key is None else "key"
    text = "\n".join((has_key, *names))
    return text if len(text) <= MOST_QUEUES else None


def _as_flow(row: Any) -> FlowRecord:
    return FlowRecord(
        **groups.fields(row),
        state=FlowState(row.state),
        deadline=row.deadline,
        batch=row.batch,
        batch_id=row.batch_id,
        size=row.steps,
    )
