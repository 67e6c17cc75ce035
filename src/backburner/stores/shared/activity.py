"""
Recent activity and the impact of failures, on both databases.

Both read a bounded number of the newest rows, so the time does not grow with the table.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import sqlalchemy as sa

from backburner.domain.jobs.job import Instant, Visibility
from backburner.ports.store.activity import (
    Activity,
    Impact,
    Minute,
    Moved,
)
from backburner.stores.shared.paging import first_since, seen_by
from backburner.stores.tables import events, jobs, usages

T = TypeVar("T")

MOST_EVENTS: Final = 50_000
MOST_FAILURES: Final = 10_000
MOST_MOVES: Final = 10_000
MINUTE_MS: Final = 60_000
CLOCKS_AGREE_MS: Final = 300_000
"""Events are numbered in the order of their times, with a tolerance of five minutes."""


class Activities(Protocol):
    """The operations of `ActivityStore`, for any store that can read."""

    async def read(self, read: Callable[[sa.Connection], T]) -> T:
        """Run a read; each statement sees the data that was committed before it."""
        ...

    async def activity(self, owner: Visibility, *, since: Instant) -> Activity:
        return await self.read(lambda connection: _activity(connection, owner, since))

    async def throughput(self, *, since: Instant) -> Mapping[str, Moved]:
        return await self.read(lambda connection: _throughput(connection, since))

    async def impacts(self, owner: Visibility) -> Mapping[str, Impact]:
        return await self.read(lambda connection: _impacts(connection, owner))


ENDS: Final = ("job.succeeded", "job.failed", "job.cancelled")
SCATTER: Final = 7_919
"""A prime number: its multiples leave all remainders."""
_MOVE: Final = (events.c.at, events.c.n, events.c.type, events.c.job)


def _throughput(connection: sa.Connection, since: Instant) -> dict[str, Moved]:
    e = events.c
    begin = first_since(connection, e.at, since)
    last = connection.execute(sa.select(sa.func.max(e.seq))).scalar() or 0
    step = max(0, last - begin) // MOST_MOVES + 1
    if step == 1:
        early = first_since(connection, e.at, since - CLOCKS_AGREE_MS)
        newest = sa.select(*_MOVE).where(e.seq >= early).order_by(e.seq.desc())
        rows = _moves(connection, newest.limit(MOST_MOVES), since)
    else:
        rows = _moves(connection, _sample(begin, step), since)
    return {
        name: Moved(int(arrived) * step, int(ended) * step)
        for name, arrived, ended in rows
    }


def _sample(begin: int, step: int) -> sa.Select[Any]:
    """
    Select one of every `step` events from `begin` on, not always the same of them.

    The events of jobs that pass one after the other repeat in a fixed pattern.
    """
    n = sa.select(sa.literal(0, sa.BigInteger).label("n")).cte("places", recursive=True)
    n = n.union_all(sa.select(n.c.n + 1).where(n.c.n < MOST_MOVES - 1))
    seq = begin + n.c.n * step + n.c.n * SCATTER % step
    return sa.select(*_MOVE).join_from(n, events, events.c.seq == seq)


def _moves(
    connection: sa.Connection, some: sa.Select[Any], since: Instant
) -> Sequence[Any]:
    """Count the arrivals and ends among some events, by queue."""
    c = some.cte("some").c
    arrives, ends = c.n == 1, c.type.in_(ENDS)
    # Found one by one by their numbers: a join might read all jobs.
    queue = sa.select(jobs.c.queue).where(jobs.c.seq == c.job).scalar_subquery()
    is_move = sa.and_(c.job.is_not(None), c.at >= since, sa.or_(arrives, ends))
    found = (
        sa.select(
            queue.label("queue"),
            sa.case((arrives, 1), else_=0).label("arrived"),
            sa.case((ends, 1), else_=0).label("ended"),
        )
        .where(is_move)
        .subquery()
    )
    moved = (sa.func.sum(found.c.arrived), sa.func.sum(found.c.ended))
    query = sa.select(found.c.queue, *moved).where(found.c.queue.is_not(None))
    return connection.execute(query.group_by(found.c.queue)).all()


def _activity(connection: sa.Connection, owner: Visibility, since: Instant) -> Activity:
    e = events.c
    begin = first_since(connection, e.at, since - CLOCKS_AGREE_MS)
    columns = (e.at, e.n, e.type, e.job, e.tenant, e.user)
    newest = sa.select(*columns).where(e.seq >= begin).order_by(e.seq.desc())
    c = newest.limit(MOST_EVENTS).cte("newest").c
    minute = c.at // MINUTE_MS
    is_seen = sa.and_(c.job.is_not(None), c.at >= since, *seen_by(owner, c))
    # In one pass: the owner is checked only after the limit on rows is applied.
    query = sa.select(
        minute,
        sa.func.count(),
        sa.func.min(c.at),
        _count(is_seen),
        _count(is_seen, c.n == 1),
        _count(is_seen, c.type == "job.succeeded"),
        _count(is_seen, c.type == "job.failed"),
        _count(is_seen, c.type == "job.retrying"),
    )
    rows = connection.execute(query.group_by(minute).order_by(minute)).all()
    first = min((row[2] for row in rows), default=since)
    is_capped = sum(row[1] for row in rows) >= MOST_EVENTS and first > since
    return Activity(
        since=max(since, first) if is_capped else since,
        is_capped=is_capped,
        minutes=[
            Minute(int(at) * MINUTE_MS, *map(int, counts))
            for at, _, _, seen, *counts in rows
            if seen
        ],
    )


def _count(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[Any]:
    return sa.func.sum(sa.case((sa.and_(*conditions), 1), else_=0))


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
