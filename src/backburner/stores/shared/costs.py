"""
The cost of the newest model calls by capability, model and user.

At most `MOST_CALLS` calls are read, so the time does not grow with the history; the
report says how far back they go.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import sqlalchemy as sa

from backburner.ports.store.usage import CostReport, JobCost, UsageFilter
from backburner.stores.shared.usages import conditions_of, spent_of, sums_of
from backburner.stores.tables import events, jobs, usages

T = TypeVar("T")

MOST_CALLS: Final = 10_000
KINDS: Final = ("capability", "model", "user")
"""The groupings of a cost report."""
_TOTAL: Final = "total"
_PROGRESS: Final = ("job.progress", "job.output.delta")
_FAILURES: Final = ("job.retrying", "job.failed", "job.stalled")
"""The events that end a failed run."""


class Costs(Protocol):
    """The cost reports of `UsageStore`, for any store that can read."""

    async def read(self, read: Callable[[sa.Connection], T]) -> T:
        """Run a read; each statement sees the data that was committed before it."""
        ...

    async def costs(self, where: UsageFilter, *, limit: int) -> CostReport:
        return await self.read(lambda connection: _costs(connection, where, limit))


def _costs(connection: sa.Connection, where: UsageFilter, limit: int) -> CostReport:
    """Sum up the newest calls and list the most expensive jobs."""
    newest = _newest(where)
    groups: defaultdict[str, list[Any]] = defaultdict(list)
    for kind, key, first, *sums in connection.execute(_grouped(newest)):
        groups[kind].append((key, first, spent_of(sums)))
    [(_, since, total)] = groups[_TOTAL]
    return CostReport(
        total=total,
        failed=spent_of(connection.execute(_failed(newest)).one()),
        by={kind: _dearest(groups[kind], limit) for kind in KINDS},
        jobs=_dearest_jobs(connection, newest, limit),
        since=since,
        is_capped=total.calls >= MOST_CALLS,
    )


def _newest(where: UsageFilter) -> sa.CTE:
    query = sa.select(usages).where(*conditions_of(where))
    return query.order_by(usages.c.at.desc()).limit(MOST_CALLS).cte("newest")


def _grouped(newest: sa.CTE) -> sa.CompoundSelect[Any]:
    """Return a row for all calls and one for each value of each kind."""
    c = newest.c
    first = sa.func.min(c.at)
    nothing = sa.literal("")
    whole = sa.select(sa.literal(_TOTAL), nothing, first, *sums_of(c))
    return sa.union_all(
        whole,
        *(
            sa.select(sa.literal(kind), c[kind], first, *sums_of(c)).group_by(c[kind])
            for kind in KINDS
        ),
    )


def _dearest(groups: Sequence[Any], limit: int) -> list[Any]:
    named = [(key, spent) for key, _, spent in groups]
    named.sort(key=lambda item: (-item[1].known_cost, -item[1].tokens, item[0]))
    return named[:limit]


def _failed(newest: sa.CTE) -> sa.Select[Any]:
    """Sum up the calls of failed runs, found by the next event of the job."""
    c, e, j = newest.c, events.c, jobs.c
    # Most jobs succeed in their first run: their events are not read.
    had_failure = sa.or_(
        j.state == "failed", j.attempt > 1, j.generation > 0, j.crashes > 0
    )
    how_it_ended = (
        sa.select(e.type)
        .where(e.job == c.job, e.n > c.epoch, e.type.not_in(_PROGRESS))
        .order_by(e.n)
        .limit(1)
        .scalar_subquery()
    )
    return (
        sa.select(*sums_of(c))
        .join_from(newest, jobs, j.seq == c.job)
        .where(had_failure, how_it_ended.in_(_FAILURES))
    )


def _dearest_jobs(
    connection: sa.Connection, newest: sa.CTE, limit: int
) -> list[JobCost]:
    c, j = newest.c, jobs.c
    cost = sa.func.coalesce(sa.func.sum(c.cost), 0)
    dearest = (
        sa.select(c.job, *sums_of(c))
        .group_by(c.job)
        .order_by(cost.desc(), sa.func.sum(c.input_tokens + c.output_tokens).desc())
        .limit(limit)
    )
    sums = {seq: spent_of(found) for seq, *found in connection.execute(dearest)}
    named = sa.select(j.seq, j.id, j.capability, j.user, j.state)
    rows = connection.execute(named.where(j.seq.in_(sums)))
    # A deleted job is not listed; the sums include its cost.
    found = {
        seq: JobCost(job_id, capability, user, state, sums[seq])
        for seq, job_id, capability, user, state in rows
    }
    return [found[seq] for seq in sums if seq in found]
