"""Data for quotes and receipts, on both databases."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from typing import Any, Protocol

import orjson
import sqlalchemy as sa

from backburner.domain.costs.budget import Account, Balance, Charge, Kind, Unit
from backburner.domain.costs.quote import Past
from backburner.domain.events.event import DELTA
from backburner.domain.jobs.job import WAITING, Instant, Job, JobState, NewJob
from backburner.domain.queues.fairness import share_of
from backburner.domain.webhooks import delivery
from backburner.ports.store.forecasts import Closing, Outlook
from backburner.stores.shared.access import Access
from backburner.stores.shared.job_filters import has_tag
from backburner.stores.shared.ledger import read_rules
from backburner.stores.shared.owned import owned_jobs
from backburner.stores.shared.settling import KEYED
from backburner.stores.tables import (
    accounts,
    entries,
    events,
    holds,
    jobs,
    usages,
    workers,
)

j = jobs.c

REMEMBERED = 2_000
"""How many recently ended jobs a forecast uses."""
CALLS = 1_000
MOST_RUNNING = 2_000


class Prospects(Access, Protocol):
    """The operations of `ForecastStore`, for any store that can read."""

    async def outlook(
        self, queue: str, capability: str, priority: int, *, now: Instant
    ) -> Outlook:
        def look(connection: sa.Connection) -> Outlook:
            return Outlook(
                _ahead(connection, queue, priority),
                _ages(connection, queue, now),
                _busy(connection, queue),
                _past(connection, queue),
                _uses(connection, capability),
            )

        return await self.read(look)

    async def crowd(self, job: NewJob) -> int:
        return await self.read(lambda connection: _crowd(connection, job))

    async def room(
        self, job: NewJob, *, now: Instant
    ) -> Sequence[tuple[Charge, Balance]]:
        return await self.read(lambda connection: _room(connection, job, now))

    async def closing(self, job: Job) -> Closing:
        return await self.read(lambda connection: _closing(connection, job))


def _ahead(connection: sa.Connection, queue: str, priority: int) -> int:
    query = sa.select(sa.func.count()).where(
        sa.text("state = 'queued'"), j.queue == queue, j.priority >= priority
    )
    return connection.execute(query.select_from(jobs)).scalar_one()


def _crowd(connection: sa.Connection, job: NewJob) -> int:
    share = share_of(job)
    states = ",".join(f"'{state}'" for state in sorted(WAITING))
    query = sa.select(sa.func.count()).where(
        sa.text(f"state IN ({states})"),
        j.queue == share.queue,
        j.tenant == share.tenant,
        j.share == share.name,
    )
    return connection.execute(query.select_from(jobs)).scalar_one()


def _ages(connection: sa.Connection, queue: str, now: Instant) -> list[int]:
    query = (
        sa.select(j.started_at)
        .where(sa.text("state = 'running'"), j.queue == queue)
        .limit(MOST_RUNNING)
    )
    return [max(0, now - at) for (at,) in connection.execute(query)]


def _busy(connection: sa.Connection, queue: str) -> int:
    query = (
        sa.select(sa.func.count())
        .select_from(jobs)
        .join(workers, workers.c.id == j.worker)
        .where(sa.text("state = 'running'"), j.queue != queue)
        .where(has_tag(workers.c.queues, queue))
    )
    return connection.execute(query).scalar_one()


_PAST = (
    sa.select(
        *(j.capability, j.queue, j.attempt, j.generation, j.throttled),
        *(j.created_at, j.ready_at, j.started_at, j.finished_at),
    )
    # Jobs with their queue's own retention have an index of their own.
    .where(j.finished_at.is_not(None), j.kept.is_(None))
    .order_by(j.finished_at.desc())
    .limit(REMEMBERED)
)


_KEPT_PAST = (
    sa.select(*_PAST.selected_columns)
    .where(sa.text("finished_at IS NOT NULL AND kept IS NOT NULL"))
    .where(j.queue == sa.bindparam("queue"), j.state == sa.bindparam("state"))
    .where(j.kept == sa.bindparam("kind"))
    .order_by(j.finished_at.desc())
    .limit(REMEMBERED)
)


def _past(connection: sa.Connection, queue: str) -> list[Past]:
    rows = [*connection.execute(_PAST)]
    for state, kind in product((JobState.SUCCEEDED, JobState.FAILED), (1, KEYED)):
        asked = {"queue": queue, "state": state, "kind": kind}
        rows += connection.execute(_KEPT_PAST, asked)
    rows.sort(key=lambda row: row.finished_at, reverse=True)
    del rows[REMEMBERED:]
    return [_as_past(row) for row in rows if row.started_at is not None]


def _as_past(row: Any) -> Past:
    ran = max(0, row.finished_at - row.started_at)
    is_first = row.attempt <= 1 and not row.generation and not row.throttled
    took = ran if is_first else max(ran, row.finished_at - row.created_at)
    waited = max(0, row.started_at - row.ready_at)
    return Past(row.capability, row.queue, waited, ran, took)


def _uses(connection: sa.Connection, capability: str) -> list[tuple[int, int | None]]:
    u = usages.c
    query = sa.select(
        u.job, u.capability, u.input_tokens + u.output_tokens, u.cost
    ).order_by(u.seq.desc())
    by_job: defaultdict[int, list[tuple[int, int | None]]] = defaultdict(list)
    for job, name, tokens, cost in connection.execute(query.limit(CALLS)):
        if name == capability:
            by_job[job].append((tokens, cost))
    return [_added(calls) for calls in by_job.values()]


def _added(calls: Sequence[tuple[int, int | None]]) -> tuple[int, int | None]:
    costs = [cost for _, cost in calls if cost is not None]
    is_known = len(costs) == len(calls)
    return sum(tokens for tokens, _ in calls), sum(costs) if is_known else None


def _room(
    connection: sa.Connection, job: NewJob, now: Instant
) -> list[tuple[Charge, Balance]]:
    charges = read_rules(connection).charges(job, now)
    return [(charge, _balance(connection, charge.account)) for charge in charges]


def _balance(connection: sa.Connection, account: Account) -> Balance:
    a = accounts.c
    names = (a.scope, a.unit, a.per, a.tenant, a.value, a.window_at)
    named = [column == value for column, value in zip(names, account, strict=True)]
    row = connection.execute(sa.select(a.held, a.settled, a.overdraft).where(*named))
    amounts = row.one_or_none()
    return Balance() if amounts is None else Balance(*amounts)


def _closing(connection: sa.Connection, job: Job) -> Closing:
    released = _released(connection, job)
    return Closing(
        _text(connection, job),
        released.get(Unit.TOKENS),
        released.get(Unit.MONEY),
        _webhooks(connection, job),
    )


def _text(connection: sa.Connection, job: Job) -> int:
    e = events.c
    query = sa.select(e.data).where(e.job == job.seq, e.type == DELTA)
    last = connection.execute(query.order_by(e.n.desc()).limit(1)).scalar()
    if last is None:
        return 0
    delta = orjson.loads(last)
    return int(delta["offset"]) + len(delta["text"])


def _released(connection: sa.Connection, job: Job) -> dict[str, int]:
    """Return the amounts held and not used; of several budgets, the highest."""
    h, a, e = holds.c, accounts.c, entries.c
    freed = sa.func.coalesce(sa.func.sum(e.amount), 0)
    # A literal, so that the partial index entries_released is used.
    is_kind = sa.text(f"entries.kind = '{Kind.RELEASED}'")
    is_release = sa.and_(e.hold == h.seq, is_kind)
    held = sa.func.coalesce(h.resumes_with, h.amount)
    query = (
        sa.select(a.unit, h.earlier, h.is_open, held - h.used, freed)
        .join(accounts, a.seq == h.account)
        .outerjoin(entries, is_release)
        .where(h.job == job.seq, h.job.is_not(None), h.generation == job.generation)
        .group_by(a.unit, h.seq)
    )
    totals: dict[str, int] = {}
    for unit, earlier, is_open, unused, amount in connection.execute(query):
        # If the job waited, the amount released then was held again.
        rest = 0 if is_open else max(0, unused or 0)
        released = amount if earlier is None else rest
        totals[unit] = max(totals.get(unit, 0), int(released))
    return totals


def _webhooks(connection: sa.Connection, job: Job) -> int:
    """Count the webhooks of earlier ends; that of this end may not exist yet."""
    if job.callback is None or not job.generation:
        return 0
    conditions: list[Any] = [
        j.capability == delivery.CAPABILITY,
        j.state == JobState.SUCCEEDED,
        j.finished_at <= job.finished_at,
        has_tag(j.tags, f"delivery:{job.id}"),
    ]
    query = sa.select(sa.func.count()).select_from(jobs).where(*conditions)
    mine, number = owned_jobs(connection, query, job.owner)
    # Webhooks about a job were submitted after it.
    return int(connection.execute(mine.where(number > job.seq)).scalar_one())
