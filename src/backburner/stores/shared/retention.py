"""
Deletes ended jobs of queues with their own retention, on both databases.

Such jobs and flows are marked when they are submitted and have indexes of their own, in
which those to delete come first. If the queue has no policy any more, the general
retention applies.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Any

import sqlalchemy as sa

from backburner.domain.jobs.job import Instant, JobState
from backburner.domain.jobs.retention import Place, horizon, until
from backburner.domain.queues.queue import Keep
from backburner.ports.store.maintenance import Retention
from backburner.stores.shared import flows as flowing
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.shared.queue_policies import policies
from backburner.stores.shared.settling import KEY_LIFETIME_MS, KEYED
from backburner.stores.shared.steps import delete_of
from backburner.stores.tables import events, flows, jobs

j, f = jobs.c, flows.c
MOST_EVENTS = 5_000
"""How many events are deleted at once: readers of all events wait meanwhile."""
KINDS = (1, KEYED)
# Literals, so that the partial indexes jobs_kept and flows_kept are used.
MINE = sa.text("finished_at IS NOT NULL AND kept IS NOT NULL")
NAMES = """
WITH RECURSIVE names (name) AS (
  SELECT min({column}) FROM {table} WHERE finished_at IS NOT NULL AND kept IS NOT NULL
  UNION ALL
  SELECT (SELECT min({column}) FROM {table}
           WHERE finished_at IS NOT NULL AND kept IS NOT NULL AND {column} > names.name)
    FROM names WHERE names.name IS NOT NULL
)
SELECT name FROM names WHERE name IS NOT NULL
"""
QUEUES = sa.text(NAMES.format(table="jobs", column="queue"))
CLASSES = sa.text(NAMES.format(table="flows", column="kept"))
Body = Callable[[InternalTx], Sequence[str]]


def prune_jobs(general: Retention, now: Instant, limit: int) -> Body:
    """Return a body that deletes jobs beyond their queues' limits."""

    def body(tx: InternalTx) -> Sequence[str]:
        known = policies(tx.connection)
        rows: list[Any] = []
        for queue in tx.connection.execute(QUEUES).scalars().all():
            for state in general._fields:
                limits = _limits(known.get(queue), general, state)
                rows += _old_jobs(tx, (queue, state), limits, now, limit - len(rows))
        before = accumulate((row.events for row in rows), initial=0)
        gone = [row for row, n in zip(rows, before, strict=False) if n < MOST_EVENTS]
        seqs = [row.seq for row in gone]
        if seqs:
            tx.connection.execute(events.delete().where(events.c.job.in_(seqs)))
            delete_of(tx.connection, seqs)
            tx.connection.execute(jobs.delete().where(j.seq.in_(seqs)))
        return [row.id for row in gone]

    return body


def prune_flows(general: Retention, now: Instant, limit: int) -> Body:
    """Return a body that deletes flows once the queues of all steps allow it."""

    def body(tx: InternalTx) -> Sequence[str]:
        known = policies(tx.connection)
        gone: list[int] = []
        for kept in tx.connection.execute(CLASSES).scalars().all():
            for troubled in (False, True):
                last = _flow_horizon(tx, (kept, troubled), known, general, now)
                rows = _old_flows(tx, kept, troubled, last, limit - len(gone))
                gone += _allowed(tx, kept, rows, until(now, max(general)))
        return flowing.delete_some(tx, gone, limit)

    return body


Limits = tuple[timedelta, int | None]
"""The maximum age and count."""


def _limits(keep: Keep | None, general: Retention, state: str) -> Limits:
    age: timedelta = getattr(general, state)
    if keep is None or state == JobState.CANCELLED:
        return age, None
    return getattr(keep, state) or age, getattr(keep, f"{state}_count")


def _old_jobs(
    tx: InternalTx, where: tuple[str, str], limits: Limits, now: Instant, limit: int
) -> list[Any]:
    age, count = limits
    mine = (MINE, j.queue == where[0], j.state == where[1])
    newest = _newest(tx, jobs, [(*mine, j.kept == kind) for kind in KINDS], count)
    last = horizon(now=now, age=age, count=count, newest=newest)
    rows: list[Any] = []
    for kind in KINDS:
        upto = min(last, _keyed(now)) if kind == KEYED else last
        query = sa.select(j.seq, j.id, j.events).where(*mine, j.kept == kind)
        old = _first(query, jobs, upto, max(0, limit - len(rows)))
        rows += tx.connection.execute(old)
    return rows


def _keyed(now: Instant) -> Place:
    return until(now, timedelta(milliseconds=KEY_LIFETIME_MS))


def _newest(
    tx: InternalTx, table: sa.Table, parts: Sequence[Sequence[Any]], count: int | None
) -> list[Place]:
    """Return the latest ends of all parts together, one more than `count`."""
    if count is None:
        return []
    t, places = table.c, list[Place]()
    for part in parts:
        query = sa.select(t.finished_at, t.seq).where(*part)
        latest = query.order_by(t.finished_at.desc(), t.seq.desc()).limit(count + 1)
        places += [(at, seq) for at, seq in tx.connection.execute(latest)]
    return sorted(places, reverse=True)[: count + 1]


def _first(
    query: sa.Select[Any], table: sa.Table, upto: Place, limit: int
) -> sa.Select[Any]:
    t = table.c
    last = [sa.literal(number, sa.BigInteger) for number in upto]
    place = sa.tuple_(t.finished_at, t.seq) <= sa.tuple_(*last)
    ordered = query.where(place).order_by(t.finished_at, t.seq).limit(limit)
    return ordered.with_for_update(skip_locked=True)


def _flow_horizon(
    tx: InternalTx,
    where: tuple[str, bool],
    known: Mapping[str, Keep],
    general: Retention,
    now: Instant,
) -> Place:
    """Return the last position up to which all queues of such flows allow deletion."""
    kept, troubled = where
    key, *queues = kept.split("\n")
    alike = ["\n".join((key_, *queues)) for key_ in ("", "key")]
    parts = [(MINE, f.kept == one, f.troubled == sa.literal(troubled)) for one in alike]
    # A flow without a failed step has only succeeded steps.
    states = general._fields if troubled else (JobState.SUCCEEDED.value,)
    places: list[Place] = [_keyed(now)] if key else []
    for queue in queues:
        for age, count in (_limits(known.get(queue), general, s) for s in states):
            newest = _newest(tx, flows, parts, count)
            places.append(horizon(now=now, age=age, count=count, newest=newest))
    return min(places)


def _old_flows(
    tx: InternalTx, kept: str, troubled: bool, upto: Place, limit: int
) -> list[Any]:
    query = sa.select(f.seq, f.finished_at).where(
        MINE, f.kept == kept, f.troubled == sa.literal(troubled)
    )
    return list(tx.connection.execute(_first(query, flows, upto, max(0, limit))))


def _allowed(
    tx: InternalTx, kept: str, found: Sequence[Any], general: Place
) -> list[int]:
    """Leave out flows that were extended by steps of queues with a longer retention."""
    known = {*kept.split("\n")[1:]}
    steps = sa.select(j.flow, j.queue).where(j.flow.in_([row.seq for row in found]))
    rows = tx.connection.execute(steps.distinct()).all() if found else ()
    extended = {flow for flow, queue in rows if queue not in known}
    return [
        row.seq
        for row in found
        if row.seq not in extended or (row.finished_at, 0) <= general
    ]
