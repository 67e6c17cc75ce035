"""Deletes the data of a user, on both databases."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Final, Protocol, TypeVar

import sqlalchemy as sa

from backburner.domain.costs.budget import Scope
from backburner.domain.jobs.job import FINAL, Owner
from backburner.ports.store.erasure import Erasable
from backburner.ports.store.transactions import Connection, Tx
from backburner.stores.shared import flows as flowing
from backburner.stores.shared.access import Access
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.shared.owned import owned_jobs
from backburner.stores.shared.steps import delete_of
from backburner.stores.tables import (
    account_samples,
    accounts,
    api_keys,
    app_blobs,
    batches,
    budgets,
    endpoints,
    events,
    flows,
    jobs,
    schedules,
    shares,
    usages,
)

T = TypeVar("T")

MOST_EVENTS: Final = 5_000
"""After this many events, no more jobs are deleted in the same transaction."""
_RECORDS: Final = (api_keys, endpoints)


class Erasing(Access, Protocol):
    """The operations of `ErasureStore`, on both databases."""

    async def internal_transaction(self, body: Callable[[InternalTx], T]) -> T:
        """Run a body in its own durable transaction."""
        ...

    async def unfinished(self, owner: Owner, *, limit: int) -> Sequence[str]:
        return await self.read(lambda c: _unfinished(c, owner, limit))

    async def erasable(self, owner: Owner, *, limit: int) -> Erasable:
        return await self.read(lambda c: _erasable(c, owner, limit))

    async def erase(self, owner: Owner, which: Erasable) -> int:
        return await self.internal_transaction(lambda tx: _erase(tx, owner, which))

    async def erase_records(self, owner: Owner, *, limit: int) -> int:
        return await self.transact(lambda tx: _erase_records(tx, owner, limit))

    async def anonymise(self, owner: Owner, alias: str, *, limit: int) -> int:
        return await self.transact(lambda tx: _anonymise(tx, owner, alias, limit))


def _of(table: sa.Table, owner: Owner) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.tenant == owner.tenant, table.c.user == owner.user)


def _unfinished(connection: Connection, owner: Owner, limit: int) -> list[str]:
    ids: list[str] = []
    for table in (batches, flows):
        going_on = sa.select(table.c.id).where(
            _of(table, owner), table.c.finished_at.is_(None)
        )
        ids += connection.execute(going_on.limit(limit - len(ids))).scalars()
    alone = sa.select(jobs.c.id).where(
        jobs.c.finished_at.is_(None), jobs.c.flow.is_(None)
    )
    going_on, _ = owned_jobs(connection, alone, owner)
    ids += connection.execute(going_on.limit(limit - len(ids))).scalars()
    return ids


def _erasable(connection: Connection, owner: Owner, limit: int) -> Erasable:
    size = sa.func.coalesce(sa.func.sum(jobs.c.events + 1), 0)
    ended = (
        sa.select(flows.c.seq, size)
        .outerjoin(jobs, jobs.c.flow == flows.c.seq)
        .where(_of(flows, owner), flows.c.finished_at.is_not(None))
        .group_by(flows.c.seq)
        .order_by(flows.c.seq)
        .limit(limit)
    )
    chosen = _enough(connection.execute(ended))
    if chosen:
        steps = sa.select(jobs.c.id).where(jobs.c.flow.in_(chosen))
        return Erasable(flows=chosen, ids=connection.execute(steps).scalars().all())
    over = sa.select(jobs.c.seq, jobs.c.events + 1, jobs.c.id).where(
        jobs.c.finished_at.is_not(None), jobs.c.flow.is_(None)
    )
    plain, number = owned_jobs(connection, over, owner)
    rows = connection.execute(plain.order_by(number).limit(limit)).all()
    if rows:
        chosen = _enough(rows)
        return Erasable(jobs=chosen, ids=[row.id for row in rows[: len(chosen)]])
    kept = sa.select(app_blobs.c.seq, app_blobs.c.id).where(_of(app_blobs, owner))
    blobs = connection.execute(kept.order_by(app_blobs.c.seq).limit(limit)).all()
    return Erasable(blobs=[b.seq for b in blobs], ids=[b.id for b in blobs])


def _enough(rows: Iterable[Any]) -> list[int]:
    """Return keys up to the limit of events per transaction, at least one."""
    sizes = [(row[0], int(row[1])) for row in rows]
    before = accumulate((size for _, size in sizes), initial=0)
    return [
        seq for (seq, _), size in zip(sizes, before, strict=False) if size < MOST_EVENTS
    ]


def _erase(tx: InternalTx, owner: Owner, which: Erasable) -> int:
    run = tx.connection.execute
    ended = sa.select(flows.c.seq).where(
        flows.c.seq.in_(which.flows),
        _of(flows, owner),
        flows.c.finished_at.is_not(None),
    )
    gone = run(ended.order_by(flows.c.seq).with_for_update()).scalars().all()
    count = len(flowing.delete(tx, gone)) if gone else 0
    final = sa.select(jobs.c.seq).where(
        jobs.c.seq.in_(which.jobs), _of(jobs, owner), jobs.c.state.in_(FINAL)
    )
    seqs = run(final.order_by(jobs.c.seq).with_for_update()).scalars().all()
    if seqs:
        run(events.delete().where(events.c.job.in_(seqs)))
        delete_of(tx.connection, seqs)
        run(jobs.delete().where(jobs.c.seq.in_(seqs)))
    theirs = app_blobs.c.seq.in_(which.blobs), _of(app_blobs, owner)
    return int(count + len(seqs) + run(app_blobs.delete().where(*theirs)).rowcount)


def _erase_records(tx: Tx, owner: Owner, limit: int) -> int:
    run = tx.connection.execute
    # First, as they are locked before batches, and nothing more is to be submitted.
    saved = sa.select(schedules.c.name).where(_of(schedules, owner))
    chosen = saved.order_by(schedules.c.name).limit(limit).with_for_update()
    names = run(chosen).scalars().all()
    if names:
        run(schedules.delete().where(schedules.c.name.in_(names)))
    ended = sa.select(batches.c.seq).where(
        _of(batches, owner), batches.c.finished_at.is_not(None)
    )
    chosen = ended.order_by(batches.c.seq).limit(limit).with_for_update()
    gone = run(chosen).scalars().all()
    if gone:
        run(events.delete().where(events.c.batch.in_(gone)))
        run(batches.delete().where(batches.c.seq.in_(gone)))
    count = len(names) + len(gone)
    published = sa.select(events.c.seq).where(
        _of(events, owner), events.c.topic.is_not(None)
    )
    some = published.limit(limit)
    count += run(events.delete().where(events.c.seq.in_(some))).rowcount
    for table in _RECORDS:
        some = sa.select(table.c.id).where(_of(table, owner)).limit(limit)
        count += run(table.delete().where(table.c.id.in_(some))).rowcount
    named = shares.c.tenant == owner.tenant, shares.c.name == owner.user
    count += run(shares.delete().where(*named)).rowcount
    theirs = budgets.c.scope == Scope.USER, budgets.c.value == _account(owner)
    return int(count + run(budgets.delete().where(*theirs)).rowcount)


def _account(owner: Owner) -> str:
    """Return the name of a user in budgets and accounts."""
    return f"{owner.tenant}/{owner.user}"


def _anonymise(tx: Tx, owner: Owner, alias: str, limit: int) -> int:
    run = tx.connection.execute
    some = sa.select(usages.c.seq).where(_of(usages, owner)).limit(limit)
    renamed = usages.update().where(usages.c.seq.in_(some))
    count = run(renamed.values(user=alias, tags=None)).rowcount
    theirs = (
        accounts.c.scope == Scope.USER,
        accounts.c.tenant == owner.tenant,
        accounts.c.value == _account(owner),
    )
    chosen = run(sa.select(accounts.c.seq).where(*theirs).limit(limit)).scalars().all()
    run(account_samples.delete().where(account_samples.c.account.in_(chosen)))
    account = _account(Owner(owner.tenant, alias))
    moved = accounts.update().where(accounts.c.seq.in_(chosen))
    return int(count + run(moved.values(value=account)).rowcount)
