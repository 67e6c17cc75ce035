"""Retries jobs that other jobs depend on, on both databases."""

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from backburner.domain.events import event
from backburner.domain.groups.flow import Reopening, StepStatus, reopened
from backburner.domain.jobs.job import Instant, JobState
from backburner.ports.store.jobs import Move
from backburner.stores.shared import groups
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.shared.flows import add_active
from backburner.stores.shared.ledger import renew
from backburner.stores.shared.settling import as_json, turns
from backburner.stores.shared.steps import delete_of
from backburner.stores.tables import batches, edges, flows
from backburner.stores.tables import jobs as job_table

c, e = job_table.c, edges.c


def reopen(tx: InternalTx, moves: Sequence[Move], *, fresh: bool) -> list[bool]:
    """
    Retry failed jobs; steps that ended because of them wait again.

    `fresh` deletes what is stored for the handlers of the retried jobs.
    """
    held = [False] * len(moves)
    _lock(tx, [move.seq for move in moves])
    for turn in turns(moves):
        for seq in _reopen(tx, [moves[index] for index in turn.values()]):
            held[turn[seq]] = True
    retried = [move.seq for move, is_held in zip(moves, held, strict=True) if is_held]
    if fresh and retried:
        delete_of(tx.connection, retried)
    return held


def _lock(tx: InternalTx, seqs: Sequence[int]) -> None:
    """Lock the batches and flows of jobs, then these jobs and all steps, by key."""
    query = sa.select(c.flow, c.batch).where(c.seq.in_(seqs)).distinct()
    rows = tx.connection.execute(query).all()
    flow_keys = {flow for flow, _ in rows if flow is not None}
    tx.lock_groups(
        batches={batch for _, batch in rows if batch is not None}, flows=flow_keys
    )
    steps = sa.select(c.seq).where(c.flow.in_(flow_keys))
    step_keys = tx.connection.scalars(steps).all() if flow_keys else ()
    tx.lock_jobs({*seqs, *step_keys})


def _reopen(tx: InternalTx, moves: Sequence[Move]) -> set[int]:
    at = max(move.change.at for move in moves)
    wanted = {move.seq: move for move in moves}
    opening: dict[int, Reopening] = {}
    for flow in _flows_of(tx, wanted):
        standings = _standings(tx, flow)
        retried = [s.seq for s in standings if _is_as_it_was(s, wanted)]
        opening[flow] = reopened(retried, standings)
        _prepare(wanted, opening[flow])
    moved = {*tx.move([*wanted.values()])} if wanted else set()
    for flow, opened in opening.items():
        if opened.retried:
            _block(tx, opened, at)
            ready = sum(not opened.open.get(seq) for seq in opened.retried)
            add_active(tx, flow, ready)
    query = sa.select(c.flow, c.batch).where(c.seq.in_(sorted(moved))).distinct()
    rows = tx.connection.execute(query).all()
    groups.reopen(tx, flows, {flow for flow, _ in rows if flow is not None}, at)
    groups.reopen(tx, batches, {batch for _, batch in rows if batch is not None}, at)
    again = [seq for opened in opening.values() for seq in opened.again]
    renew(tx, [*sorted(moved), *again])
    return moved


def _flows_of(tx: InternalTx, wanted: Iterable[int]) -> Sequence[int]:
    query = sa.select(c.flow).where(c.seq.in_(wanted), c.flow.is_not(None))
    return tx.connection.execute(query.distinct().order_by(c.flow)).scalars().all()


def _is_as_it_was(step: StepStatus, wanted: Mapping[int, Move]) -> bool:
    move = wanted.get(step.seq)
    return move is not None and (step.state, step.generation) == move[1:3]


def _prepare(wanted: dict[int, Move], opened: Reopening) -> None:
    """Make retried steps wait for their prerequisites, if they have open ones."""
    for seq in opened.refused:
        del wanted[seq]
    for seq in opened.retried:
        if opened.open.get(seq):
            move = wanted[seq]
            waiting = move.change._replace(to=JobState.BLOCKED, event=event.BLOCKED)
            wanted[seq] = move._replace(change=waiting)


def _standings(tx: InternalTx, flow: int) -> list[StepStatus]:
    query = sa.select(c.seq, c.state, c.error_code, c.generation).where(c.flow == flow)
    rows = tx.connection.execute(query.order_by(c.seq)).all()
    joined = sa.select(e.dependent, e.prerequisite, e.continues).join(
        job_table, c.seq == e.dependent
    )
    needs: dict[int, list[tuple[int, bool]]] = {}
    for dependent, prerequisite, continues in tx.connection.execute(
        joined.where(c.flow == flow)
    ):
        needs.setdefault(dependent, []).append((prerequisite, bool(continues)))
    return [
        StepStatus(seq, JobState(state), code, generation, needs.get(seq, ()))
        for seq, state, code, generation in rows
    ]


_BLOCK = sa.text("""
UPDATE jobs
   SET state = 'blocked', generation = generation + 1, attempt = 0, crashes = 0,
       throttled = 0, error = NULL, error_code = NULL, fingerprint = NULL,
       finished_at = NULL, start_by = NULL, deadline = NULL, expires_at = NULL,
       ready_at = :at, events = events + 1
 WHERE seq = :seq
""")

_RECOUNT = sa.text("UPDATE jobs SET open = :open WHERE seq = :seq")


def _block(tx: InternalTx, opened: Reopening, at: Instant) -> None:
    """Make steps that had been ended wait again; correct counts of open edges."""
    if opened.again:
        rows = [{"seq": seq, "at": at} for seq in opened.again]
        tx.connection.execute(_BLOCK, rows)
        tx.tell(
            [
                (seq, event.BLOCKED, at, as_json({"generation": generation}))
                for seq, generation in opened.again.items()
            ]
        )
    if opened.open:
        counts = [{"seq": seq, "open": open_} for seq, open_ in opened.open.items()]
        tx.connection.execute(_RECOUNT, counts)
