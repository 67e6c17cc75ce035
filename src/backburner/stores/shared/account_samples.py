"""
Samples of the accounts of budgets: how much was settled and held over time.

Submissions and settlements neither read nor write samples. Upkeep reads the accounts
that have changed, without locks, and inserts their balances in one transaction: a
process that dies inserts all or none of them, and the next pass takes what is missing.
Two processes that sample at once insert the same key, and the second one is ignored. If
the clock jumps back, the slot already has a sample, which readers skip until its time
comes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from backburner.domain.costs.balance_history import (
    SHORTEST_SLOT,
    SHORTEST_WINDOW,
    SLOTS,
    AccountName,
    BalanceHistory,
    BalanceSample,
)
from backburner.domain.costs.budget import (
    Account,
    Balance,
    Rules,
    Scope,
    window_start,
)
from backburner.domain.jobs.job import Instant
from backburner.ports.store.budgets import Viewer
from backburner.stores.shared.access import Access
from backburner.stores.shared.budgets import (
    budgets_in_force,
    is_current,
    visible_accounts,
)
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.tables import account_samples, accounts, flows

T = TypeVar("T")

FEW = 10
"""Accounts with the same name; names with slashes may be ambiguous."""
ROWS = 500
"""How many rows one statement inserts."""
a, s = accounts.c, account_samples.c


class AccountSamples(Access, Protocol):
    """The samples of `BudgetStore`, on both databases."""

    async def internal_transaction(self, body: Callable[[InternalTx], T]) -> T:
        """Run a body in its own durable transaction."""
        ...

    async def read_clock(self) -> Instant:
        """Return the store's time."""
        ...

    async def sample_accounts(self, *, limit: int) -> int:
        now = await self.read_clock()
        changed = await self.read(lambda c: _changed(c, now, limit))
        if not changed:
            return 0
        # Two processes that sample at once insert in one order.
        changed.sort(key=lambda one: (one["account"], one["slot"]))
        return await self.internal_transaction(lambda tx: _insert(tx, changed))

    async def forget_samples(self, *, limit: int) -> int:
        now = await self.read_clock()
        ended = sa.select(s.account, s.slot).where(s.window_end <= now)
        if not await self.read(lambda c: c.execute(ended.limit(1)).first()):
            return 0
        some = sa.tuple_(s.account, s.slot).in_(ended.limit(limit))
        forget = account_samples.delete().where(some)
        return await self.internal_transaction(
            lambda tx: int(tx.connection.execute(forget).rowcount)
        )

    async def account_history(
        self, viewer: Viewer, name: AccountName
    ) -> BalanceHistory | None:
        now = await self.read_clock()
        return await self.read(lambda c: _history(c, now, viewer, name))


def _changed(connection: sa.Connection, now: Instant, limit: int) -> list[Any]:
    """Return the samples to store."""
    budgets = budgets_in_force(connection)
    if not budgets:
        return []
    length = sa.case(
        (a.per > SLOTS * SHORTEST_SLOT, a.per // SLOTS), else_=SHORTEST_SLOT
    )
    slot = (sa.literal(now, sa.BigInteger) - a.window_at) // length
    latest = account_samples.alias()
    last = (
        sa.select(sa.func.max(latest.c.slot))
        .where(latest.c.account == a.seq, latest.c.slot <= slot)
        .correlate(accounts)
        .scalar_subquery()
    )
    is_last = sa.and_(s.account == a.seq, s.slot == last)
    is_new = sa.and_(s.slot.is_(None), sa.or_(a.settled > 0, a.held > 0))
    differs = sa.or_(s.settled != a.settled, s.held != a.held)
    left = sa.cast(a.ceiling - a.settled - a.held, sa.Float)
    share = left / sa.case((a.ceiling > 0, a.ceiling), else_=1)
    query = (
        sa.select(
            *(a.scope, a.unit, a.per, a.tenant, a.value, a.window_at),
            *(a.seq, slot.label("number"), a.settled, a.held, a.ceiling),
        )
        .select_from(accounts)
        .outerjoin(account_samples, is_last)
        .where(is_current(budgets, now), a.window_at <= now, a.per >= SHORTEST_WINDOW)
        .where(sa.or_(is_new, sa.and_(s.slot < slot, differs)))
        .order_by(share, a.seq)
        .limit(limit)
    )
    rules = Rules(budgets)
    return [
        {
            "account": row.seq,
            "slot": row.number,
            "at": now,
            "settled": row.settled,
            "held": row.held,
            "ceiling": rules.limit(Account(*row[:6]), otherwise=row.ceiling),
            "window_end": row.window_at + row.per,
        }
        for row in connection.execute(query)
    ]


def _insert(tx: InternalTx, samples: Sequence[Any]) -> int:
    connection = tx.connection
    known: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    count = 0
    for start in range(0, len(samples), ROWS):
        some = samples[start : start + ROWS]
        insert = known.insert(account_samples).values(some).on_conflict_do_nothing()
        count += connection.execute(insert).rowcount
    return count


def _history(
    connection: sa.Connection, now: Instant, viewer: Viewer, name: AccountName
) -> BalanceHistory | None:
    scope, value, unit, per = name
    stored: Any = value
    if scope == Scope.FLOW:
        of_flow = sa.select(sa.cast(flows.c.seq, sa.Text)).where(flows.c.id == value)
        stored = of_flow.scalar_subquery()
    is_named = (
        *(a.scope == scope, a.unit == unit, a.per == per, a.value == stored),
        a.window_at == window_start(now, per),
    )
    for state in visible_accounts(connection, now, viewer, FEW, *is_named):
        account = state.account
        if (scope, unit, per, value) == (*account[:3], account.value):
            is_its = (*is_named, a.tenant == account.tenant)
            return BalanceHistory(state, now, _samples(connection, is_its, now))
    return None


def _samples(
    connection: sa.Connection, is_its: Sequence[sa.ColumnElement[bool]], now: Instant
) -> list[BalanceSample]:
    query = (
        sa.select(s.at, s.settled, s.held, s.ceiling)
        .join(accounts, a.seq == s.account)
        .where(*is_its, s.at <= now)
        .order_by(s.slot)
    )
    return [
        BalanceSample(at, Balance(held, settled), ceiling)
        for at, settled, held, ceiling in connection.execute(query)
    ]
