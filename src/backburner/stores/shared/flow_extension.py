"""Adds steps to a flow from within one of its steps, on both databases."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from backburner.domain.errors import IllegalTransition
from backburner.domain.groups.flow import Edge, FlowState, NewStep, in_order, refused
from backburner.domain.jobs.job import FINAL, JobState
from backburner.stores.shared.consequences import (
    InternalTx,
    callers_of,
    deliver,
    give_up,
)
from backburner.stores.shared.flows import add_active, add_steps, needs_of, steps
from backburner.stores.shared.ledger import close
from backburner.stores.tables import flows
from backburner.stores.tables import jobs as job_table

c, f = job_table.c, flows.c
There = Mapping[str, tuple[int, JobState]]
"""The key and state of existing steps, by name."""

UNSUCCESSFUL = FINAL - {JobState.SUCCEEDED}


def extend(tx: InternalTx, flow: int, new: Sequence[NewStep]) -> None:
    """
    Add steps to a flow.

    The step that is being settled has ended but still blocks its dependents:
    consequences are applied after bodies.
    """
    tx.lock_groups(flows=[flow])
    batch = _batch_of(tx, flow)
    names = [step.job.step or "" for step in new]
    there = _standing(tx, flow, {*names, *_named(new)})
    _check_names(new, Counter(names), there)
    _check_order(tx, flow, new, there)
    for step in new:
        needs = needs_of(step)
        step.job.flow, step.job.batch = flow, batch
        step.job.needs = len(needs)
        step.job.open = sum(_is_open(tx, edge, there) for edge in needs)
    _store(tx, new, there)
    add_active(tx, flow, sum(not step.job.open for step in new))
    _give_up(tx, flow, new, there)
    add_steps(tx, flow, len(new))


def _batch_of(tx: InternalTx, flow: int) -> int | None:
    query = sa.select(f.id, f.state, f.batch).where(f.seq == flow)
    row = tx.connection.execute(query).first()
    if row is None or row.state != FlowState.RUNNING:
        raise IllegalTransition("the flow has ended: no step can be added to it")
    batch: int | None = row.batch
    return batch


def _named(new: Sequence[NewStep]) -> set[str]:
    needed = {edge.step for step in new for edge in step.needs}
    return needed | {name for step in new for name in step.before}


def _standing(tx: InternalTx, flow: int, names: Collection[str]) -> There:
    """
    Return the keys and states of steps.

    They do not change under the flow's lock, which every step needs to end, to wait
    again or to be released.
    """
    query = sa.select(c.step, c.seq, c.state).where(c.flow == flow, c.step.in_(names))
    rows = tx.connection.execute(query.order_by(c.seq))
    return {name: (seq, JobState(state)) for name, seq, state in rows}


def _check_names(new: Sequence[NewStep], names: Counter[str], there: There) -> None:
    for step in new:
        name = step.job.step or ""
        if name in there or names[name] > 1:
            raise refused(name, "the flow already has a step of this name")
        known = {*names, *there}
        unknown = [edge.step for edge in step.needs if edge.step not in known]
        unknown += [other for other in step.before if other not in there]
        if unknown:
            raise refused(name, f"there is no step {unknown[0][:100]!r}")


def _check_order(
    tx: InternalTx, flow: int, new: Sequence[NewStep], there: There
) -> None:
    """Refuse cycles, which can only lead through existing steps."""
    needed = {edge.step for step in new for edge in step.needs} & {*there}
    is_waited_for = any(there[name][1] not in FINAL for name in needed)
    if not (is_waited_for and any(step.before for step in new)):
        return
    graph: dict[str, list[Edge]] = {
        step.job.step or "": [*step.needs] for step in steps(tx.connection, flow)
    }
    for step in new:
        name = step.job.step or ""
        graph[name] = [*step.needs]
        for held in step.before:
            graph[held].append(Edge(name))
    in_order(graph)


def _is_open(tx: InternalTx, edge: Edge, there: There) -> bool:
    """Return whether an edge blocks a new step, for now or permanently."""
    if edge.step not in there:
        return True
    seq, state = there[edge.step]
    if state not in FINAL or seq in tx.settling:
        return True
    return state in UNSUCCESSFUL and not edge.continues


def _store(tx: InternalTx, new: Sequence[NewStep], there: There) -> None:
    known = {name: seq for name, (seq, _) in there.items()}
    seqs = tx.insert([step.job for step in new])
    known |= {step.job.step or "": seq for step, seq in zip(new, seqs, strict=True)}
    rows: list[tuple[int, int, bool]] = []
    for step, here in zip(new, seqs, strict=True):
        rows += [(known[edge.step], here, edge.continues) for edge in needs_of(step)]
        for name in {*step.before}:
            _hold(tx, known[name], name)
            rows.append((here, known[name], False))
    tx.connect(rows)


def _hold(tx: InternalTx, seq: int, name: str) -> None:
    update = job_table.update().where(c.seq == seq, c.state == JobState.BLOCKED)
    held = tx.connection.execute(update.values(open=c.open + 1, needs=c.needs + 1))
    if not held.rowcount:
        raise IllegalTransition(
            f"step {name!r} is not blocked any more: no step can precede it"
        )


def _give_up(tx: InternalTx, flow: int, new: Sequence[NewStep], there: There) -> None:
    """End the new steps that cannot run because a prerequisite has failed."""
    unmet = [seq for seq, state in there.values() if state in UNSUCCESSFUL]
    at = max((step.job.created_at for step in new), default=0)
    while unmet:
        unmet = [*give_up(tx, unmet, at)]
        if unmet:
            add_active(tx, flow, len(tx.release([], unmet, at)))
            deliver(tx, callers_of(tx, unmet), at)
            close(tx, dict.fromkeys(unmet, False))
