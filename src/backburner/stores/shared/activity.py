"""
What happened lately and whom failures hit: the same on every database.

Both look at a bounded number of the newest rows, so that the time does not grow with
the table.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import sqlalchemy as sa

from backburner.domain.jobs.job import Instant, Visibility
from backburner.ports.store.activity import Activity, Impact, Minute
from backburner.stores.shared.paging import seen_by
from backburner.stores.tables import events, jobs, usages

T = TypeVar("T")

MOST_EVENTS: Final = 50_000
MOST_FAILURES: Final = 10_000
MINUTE_MS: Final = 60_000


class Activities(Protocol):
    """Tells what happened lately, for any store that can read."""

    async def read(self, read: Callable[[sa.Connection], T]) -> T:
        """Read; each statement sees what was committed before it."""
        ...

    async def activity(self, owner: Visibility, *, since: Instant) -> Activity:
        return await self.read(lambda connection: _activity(connection, owner, since))

    async def impacts(self, owner: Visibility) -> Mapping[str, Impact]:
        return await self.read(lambda connection: _impacts(connection, owner))


def _activity(connection: sa.Connection, owner: Visibility, since: Instant) -> Activity:
    e = events.c
    columns = (e.at, e.n, e.type, e.job, e.tenant, e.user)
    newest = sa.select(*columns).order_by(e.seq.desc()).limit(MOST_EVENTS)
    c = newest.cte("newest").c
    first, looked_at = connection.execute(
        sa.select(sa.func.min(c.at), sa.func.count(c.at))
    ).one()
    minute = c.at // MINUTE_MS
    query = (
        sa.select(
            minute,
            _count(c.n == 1),
            _count(c.type == "job.succeeded"),
            _count(c.type == "job.failed"),
            _count(c.type == "job.retrying"),
        )
        .where(c.job.is_not(None), c.at >= since, *seen_by(owner, c))
        .group_by(minute)
        .order_by(minute)
    )
    is_capped = looked_at >= MOST_EVENTS and first > since
    return Activity(
        since=max(since, first) if is_capped else since,
        is_capped=is_capped,
        minutes=[
            Minute(int(at) * MINUTE_MS, *(int(count or 0) for count in counts))
            for at, *counts in connection.execute(query)
        ],
    )


def _count(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[Any]:
    return sa.func.sum(sa.case((condition, 1), else_=0))


def _impacts(connection: sa.Connection, owner: Visibility) -> dict[str, Impact]:
    j, u = jobs.c, usages.c
    newest = (
        sa.select(j.seq, j.user, j.fingerprint)
        .where(sa.text("state = 'failed'"), *seen_by(owner, j))
        .order_by(j.seq.desc())
        .limit(MOST_FAILURES)
        .cte("newest")
    )
    n = newest.c
    users = sa.select(
        n.fingerprint, sa.func.count(), sa.func.count(n.user.distinct())
    ).group_by(n.fingerprint)
    costs = (
        sa.select(n.fingerprint, sa.func.sum(u.cost))
        .join_from(newest, usages, u.job == n.seq)
        .group_by(n.fingerprint)
    )
    cost = {mark: int(spent or 0) for mark, spent in connection.execute(costs)}
    return {
        mark: Impact(count, found, cost.get(mark, 0))
        for mark, count, found in connection.execute(users)
    }
