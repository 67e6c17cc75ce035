"""Budgets and reservations on both databases; `ledger.py` has the ledger."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from backburner.domain.costs.budget import (
    MOST,
    Account,
    Balance,
    Budget,
    BudgetState,
    Charge,
    Reservation,
    Rules,
    Scope,
    Unit,
    budget_of,
    exhausted,
    hold_exhausted,
)
from backburner.domain.errors import BudgetExhausted
from backburner.domain.jobs.job import Instant, Owner
from backburner.ports.store.budgets import HoldRequest, Viewer
from backburner.stores.shared import ledger
from backburner.stores.shared.access import Access
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.shared.ledger import (
    Closing,
    Holder,
    LedgerTx,
    Rulebook,
    kept,
    rules_of,
)
from backburner.stores.tables import (
    account_samples,
    accounts,
    budgets,
    entries,
    flows,
    holds,
    jobs,
)

T = TypeVar("T")

SLICE = 20_000
"""The number of entries or holds of old accounts deleted in one transaction."""
a, b, h, j = accounts.c, budgets.c, holds.c, jobs.c

# A limit set by an operator stands until an operator removes it.
_PUT = sa.text("""
INSERT INTO budgets (scope, value, unit, per, ceiling, overrun, is_declared)
VALUES (:scope, :value, :unit, :per, :ceiling, :overrun, :is_declared)
ON CONFLICT (scope, value, unit, per) DO UPDATE
   SET ceiling = excluded.ceiling, overrun = excluded.overrun,
       is_declared = excluded.is_declared
 WHERE budgets.is_declared OR NOT excluded.is_declared
""")


_HELD = (
    sa.select(h.amount, a.unit, a.per, a.window_at)
    .join(accounts, a.seq == h.account)
    .where(h.id == sa.bindparam("hold"))
)
"""Built once, as every reservation and settlement runs it."""
_TERMS = sa.select(h.seq).where(sa.text("is_open"), h.expires_at.is_not(None)).limit(1)
_UNSETTLED = (
    sa.select(h.seq, h.account, h.amount, h.is_open, a.unit)
    .join(accounts, a.seq == h.account)
    .where(h.id == sa.bindparam("hold"), h.used.is_(None))
    .order_by(h.seq)
    .with_for_update(of=holds)
)


class Budgeted(Access, Protocol):
    """The operations of `BudgetStore`, on both databases."""

    rulebook: Rulebook

    async def internal_transaction(self, body: Callable[[InternalTx], T]) -> T:
        """Run a body in its own durable transaction."""
        ...

    async def read_clock(self) -> Instant:
        """Return the store's time."""
        ...

    async def put_budgets(
        self, budgets: Sequence[Budget], *, is_declared: bool = False
    ) -> None:
        await self.internal_transaction(
            lambda tx: _put(tx, budgets, is_declared=is_declared)
        )
        self.rulebook.forget()

    async def drop_budget(self, budget: Budget) -> bool:
        dropped = await self.internal_transaction(lambda tx: _drop(tx, budget))
        self.rulebook.forget()
        return dropped

    async def budgets(self) -> Sequence[Budget]:
        return await self.read(budgets_in_force)

    async def accounts(self, viewer: Viewer, *, limit: int) -> Sequence[BudgetState]:
        now = await self.read_clock()
        return await self.read(lambda c: visible_accounts(c, now, viewer, limit))

    async def ledger_totals(self) -> Sequence[tuple[str, str, Balance]]:
        if not await self.read(budgets_in_force):
            return []
        return await self.internal_transaction(_totals)

    async def reserve(self, ask: HoldRequest) -> Reservation:
        return await self.internal_transaction(lambda tx: reserve_hold(tx, ask))

    async def settle_hold(
        self, hold_id: str, *, tokens: int | None = None, money: int | None = None
    ) -> bool:
        return await self.internal_transaction(
            lambda tx: settle_hold(tx, hold_id, tokens, money)
        )

    async def release_hold(self, hold_id: str) -> bool:
        return await self.internal_transaction(lambda tx: release_hold(tx, hold_id))

    async def overspent(self, job: int, token: str) -> BudgetExhausted | None:
        now = await self.read_clock()
        refused, has_waited = await self.read(lambda c: _overspent(c, job, now))
        if has_waited and refused is None:
            try:
                await self.internal_transaction(lambda tx: _resume(tx, job, token))
            except BudgetExhausted as no_room:
                return no_room
        return refused

    async def free_holds(self, *, limit: int) -> int:
        if not await self.read(_has_terms):
            return 0
        return await self.internal_transaction(lambda tx: _free(tx, limit))

    async def forget_accounts(self, *, before: Instant, limit: int) -> int:
        return await self.internal_transaction(
            lambda tx: forget_accounts(tx, before=before, limit=limit)
        )


def _put(tx: LedgerTx, wanted: Iterable[Budget], *, is_declared: bool) -> None:
    rows = [
        {
            **_name(budget),
            "ceiling": budget.limit,
            "overrun": budget.overrun,
            "is_declared": is_declared,
        }
        for budget in sorted(wanted, key=lambda budget: (*_name(budget).values(),))
    ]
    for row in rows:
        tx.connection.execute(_PUT, row)


def _name(budget: Budget) -> dict[str, Any]:
    return {
        "scope": budget.scope,
        "value": budget.of or "",
        "unit": budget.unit,
        "per": budget.window,
    }


def _drop(tx: LedgerTx, budget: Budget) -> bool:
    named = [b[column] == value for column, value in _name(budget).items()]
    return bool(tx.connection.execute(budgets.delete().where(*named)).rowcount)


def budgets_in_force(connection: sa.Connection) -> list[Budget]:
    """Return the budgets, by scope and value."""
    query = sa.select(b.scope, b.unit, b.ceiling, b.per, b.value, b.overrun)
    rows = connection.execute(query.order_by(b.scope, b.value, b.unit, b.per))
    return [budget_of(*row[:4], row.value or None, row.overrun) for row in rows]


def visible_accounts(
    connection: sa.Connection,
    now: Instant,
    viewer: Viewer,
    limit: int,
    *also: sa.ColumnElement[bool],
) -> list[BudgetState]:
    """Return the accounts that a viewer sees; `also` restricts those with a row."""
    wanted = budgets_in_force(connection)
    rules, states = Rules(wanted), dict[Account, BudgetState]()
    query = sa.select(
        *(a.scope, a.unit, a.per, a.tenant, a.value, a.window_at),
        *(a.held, a.settled, a.overdraft, a.ceiling),
    ).where(sa.or_(is_current(wanted, now), sa.text("accounts.held > 0")), *also)
    if viewer.owner is not None:
        asked = HoldRequest("", viewer.owner, 0, key=viewer.key)
        for account, ceiling, _ in rules.charges(asked, now):
            states[account] = BudgetState(account, ceiling, Balance())
        query = query.where(sa.or_(*map(_is, states), _is_flow(viewer.owner)))
    order = (a.scope, a.value, a.unit, a.per, a.window_at)
    for row in connection.execute(query.order_by(*order).limit(limit)):
        account, ceiling = Account(*row[:6]), row.ceiling
        ceiling = rules.limit(account, otherwise=ceiling)
        states[account] = BudgetState(account, ceiling, Balance(*row[6:9]))
    return _named_flows(connection, [*states.values()], viewer.owner)


def is_current(wanted: Sequence[Budget], now: Instant) -> sa.ColumnElement[bool]:
    """Select accounts with a current window, using an index."""
    longest = max((budget.window for budget in wanted), default=0)
    return sa.and_(a.window_at > now - longest, a.window_at + a.per > now)


def _is(account: Account) -> sa.ColumnElement[bool]:
    scope, unit, per, tenant, value, _ = account
    return sa.and_(
        *(a.scope == scope, a.unit == unit, a.per == per),
        *(a.tenant == tenant, a.value == value),
    )


def _is_flow(owner: Owner) -> sa.ColumnElement[bool]:
    return sa.and_(a.scope == Scope.FLOW, a.tenant == owner.tenant)


def _named_flows(
    connection: sa.Connection, states: Sequence[BudgetState], owner: Owner | None
) -> list[BudgetState]:
    """Replace keys of flows by their ids; leave out those of other owners."""
    seqs = [int(s.account.value) for s in states if s.account.scope == Scope.FLOW]
    if not seqs:
        return [*states]
    query = sa.select(flows.c.seq, flows.c.id, flows.c.user).where(
        flows.c.seq.in_(seqs)
    )
    known = {str(row.seq): row for row in connection.execute(query)}
    shown: list[BudgetState] = []
    for state in states:
        account = state.account
        if account.scope != Scope.FLOW:
            shown.append(state)
            continue
        flow = known.get(account.value)
        if flow is not None and (owner is None or flow.user == owner.user):
            shown.append(state._replace(account=account._replace(value=flow.id)))
    return shown


def _overspent(
    connection: sa.Connection, job: int, now: Instant
) -> tuple[BudgetExhausted | None, bool]:
    """Return the exhausted budget of a job, and whether holds must be renewed."""
    query = (
        sa.select(
            *(a.scope, a.unit, a.per, a.tenant, a.value, a.window_at),
            *(a.held, a.settled, a.overdraft, h.amount, h.resumes_with),
        )
        .join(holds, h.account == a.seq)
        .where(h.job == job, h.job.is_not(None), h.is_open)
        .where(sa.or_(h.used.is_not(None), h.resumes_with.is_not(None)))
        .order_by(h.seq)
    )
    with kept():
        rows = connection.execute(query).all()
        rules = Rules(budgets_in_force(connection)) if rows else Rules()
    running = [row for row in rows if row.resumes_with is None]
    has_waited = len(running) < len(rows)
    for row in running:
        account, balance = Account(*row[:6]), Balance(*row[6:9])
        limit = rules.limit(account, otherwise=MOST)  # the budget was removed
        if row.amount and rules.stops(account):
            charge = Charge(account, limit, row.amount)
            return hold_exhausted(charge, balance, now), has_waited
        if not balance.left(limit):
            return exhausted(Charge(account, limit, None), 0, now), has_waited
    return None, has_waited


_CLAIMED = (
    sa.select(j.seq)
    .where(j.seq == sa.bindparam("job"), j.token == sa.bindparam("token"))
    .with_for_update()
)


def _resume(tx: LedgerTx, job: int, token: str) -> None:
    """Renew the holds of a job that waited, if the claim is still valid."""
    if tx.connection.execute(_CLAIMED, {"job": job, "token": token}).first():
        ledger.resume(tx, job)


def _totals(tx: LedgerTx) -> list[tuple[str, str, Balance]]:
    sums = [
        sa.cast(sa.func.sum(column), sa.BigInteger)
        for column in (a.held, a.settled, a.overdraft)
    ]
    query = sa.select(a.scope, a.unit, *sums).group_by(a.scope, a.unit)
    current = is_current(budgets_in_force(tx.connection), tx.now())
    rows = tx.connection.execute(query.where(current))
    return [(scope, unit, Balance(*balance)) for scope, unit, *balance in rows]


def reserve_hold(tx: LedgerTx, ask: HoldRequest) -> Reservation:
    """Hold an amount without a job, once per id; may raise `BudgetExhausted`."""
    tx.lock_hold(ask.id)
    _write_pending(tx, ask.id)
    known = _found(tx, ask.id)
    if known is not None:
        return known
    charges = rules_of(tx).charges(ask, tx.now())
    holder = Holder(charges, id=ask.id, expires_at=ask.expires_at)
    ledger.reserve(tx, [holder], foreseen=True)
    held = [(c.amount or 0, *c.account[1:3], c.account.window) for c in charges]
    return _reserved(ask.id, held) or Reservation(ask.id, ask.tokens or 0, None)


def _write_pending(tx: LedgerTx, hold_id: str) -> None:
    """Write deferred holds now if one of them has this id."""
    if ledger.is_pending(tx, hold_id):
        ledger.finish(tx)


def _found(tx: LedgerTx, hold_id: str) -> Reservation | None:
    with kept():
        rows = tx.connection.execute(_HELD, {"hold": hold_id}).all()
    return _reserved(hold_id, rows)


def _reserved(hold_id: str, held: Sequence[Sequence[Any]]) -> Reservation | None:
    """Sum up the rows of a hold: amount, unit, and the window's length and start."""
    if not held:
        return None
    tokens = [amount for amount, unit, _, _ in held if unit == Unit.TOKENS]
    starts = [(start + per, per, start) for _, _, per, start in held]
    return Reservation(hold_id, max(tokens, default=0), min(starts)[2])


def settle_hold(
    tx: LedgerTx, hold_id: str, tokens: int | None, money: int | None = None
) -> bool:
    """Settle a hold with what was used; an unknown amount counts as what was held."""
    _write_pending(tx, hold_id)
    with kept():
        rows = tx.connection.execute(_UNSETTLED, {"hold": hold_id}).all()
        closings: list[Closing] = []
        for seq, account, amount, is_open, unit in rows:
            reported = tokens if unit == Unit.TOKENS else money
            used = amount if reported is None else reported
            held = amount if is_open else 0
            closings.append(Closing(seq, account, held, used, reported is None))
        ledger.settle_holds(tx, closings)
    return bool(rows)


def release_hold(tx: LedgerTx, hold_id: str) -> bool:
    """Release a hold; return whether anything was held."""
    _write_pending(tx, hold_id)
    return _release(tx, h.id == hold_id) > 0


def _release(
    tx: LedgerTx, which: sa.ColumnElement[bool], *, skip_locked: bool = False
) -> int:
    query = sa.select(h.seq, h.account, h.amount).where(which, h.is_open)
    locking = query.order_by(h.seq).with_for_update(skip_locked=skip_locked)
    with kept():
        rows = tx.connection.execute(locking).all()
        closings = [Closing(*row, used=None, is_estimated=False) for row in rows]
        ledger.settle_holds(tx, closings)
    return len(rows)


def _has_terms(connection: sa.Connection) -> bool:
    """Return whether there are holds with an expiry."""
    with kept():
        return connection.execute(_TERMS).first() is not None


def _free(tx: LedgerTx, limit: int) -> int:
    due = sa.select(h.seq).where(h.is_open, h.expires_at <= tx.now())
    chosen = h.seq.in_(due.order_by(h.expires_at).limit(limit))
    # Holds that are being settled at this moment are skipped.
    return _release(tx, chosen, skip_locked=True)


def forget_accounts(tx: LedgerTx, *, before: Instant, limit: int) -> int:
    """Delete idle accounts of old windows; return `limit` if more may be left."""
    old = (
        sa.select(a.seq)
        .where(a.window_at < before, a.window_at + a.per < tx.now(), a.held == 0)
        .where(~sa.exists().where(h.account == a.seq, h.is_open))
        .order_by(a.window_at)
        .limit(limit)
    )
    run = tx.connection.execute
    gone = run(old.with_for_update(skip_locked=True)).scalars().all()
    if not gone:
        return 0
    for table in (entries, holds):
        # In slices, as an account may have more than one transaction should delete. A
        # hold that is being settled at this moment is skipped.
        some = sa.select(table.c.seq).where(table.c.account.in_(gone)).limit(SLICE)
        free = run(some.with_for_update(skip_locked=True)).scalars().all()
        run(table.delete().where(table.c.seq.in_(free)))
        if len(free) == SLICE:
            return limit
    run(account_samples.delete().where(account_samples.c.account.in_(gone)))
    is_used = sa.exists().where(h.account == a.seq)
    return run(accounts.delete().where(a.seq.in_(gone), ~is_used)).rowcount
