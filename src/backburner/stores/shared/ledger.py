"""
The ledger on both databases: holds, settlements, releases and overdrafts.

A hold is made in the transaction that stores its job and closed in the one that ends
it. Accounts are locked before they are checked, so the second of two transactions sees
the holds of the first. If the ledger cannot be written, the job is refused.

A transaction that shares its database with other writers collects its changes of
accounts (`LedgerTx.deferred`) and applies them once, at its end: one statement locks
all accounts it needs, in the order of their names.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa

from backburner.domain.costs.budget import (
    Account,
    Balance,
    Charge,
    Kind,
    Payer,
    Posting,
    Rules,
    actual,
    admit,
    budget_of,
    post,
    readmit,
    settle,
)
from backburner.domain.errors import BudgetExhausted, StoreUnavailable
from backburner.domain.jobs.job import Instant, NewJob, Owner, Submitted
from backburner.stores.shared.deferral import Deferred
from backburner.stores.shared.settling import as_given
from backburner.stores.tables import accounts, budgets, holds, jobs

REREAD_MS = 500
"""How long budgets are cached; every process applies a new one after this time."""


class Rulebook:
    """The budgets as this process last read them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._read_at: float | None = None
        self.rules = Rules()

    @property
    def is_stale(self) -> bool:
        """Whether the budgets must be read again."""
        return self._read_at is None or self._now() - self._read_at >= REREAD_MS

    def take(self, rules: Rules) -> Rules:
        """Cache these budgets for a while."""
        self.rules, self._read_at = rules, self._now()
        return rules

    def forget(self) -> None:
        """Expire the cache, because the budgets have changed."""
        self._read_at = None


class LedgerTx(Protocol):
    """The parts of a transaction that the ledger needs, on both databases."""

    @property
    def connection(self) -> sa.Connection:
        """The SQLAlchemy connection, for statements that run rarely."""
        ...

    @property
    def queries(self) -> Any:
        """The statements of the database."""
        ...

    @property
    def rulebook(self) -> Rulebook:
        """The budgets as this process last read them."""
        ...

    @property
    def deferred(self) -> Deferred | None:
        """The work to do at the end; `None` to do everything at once."""
        ...

    def now(self) -> Instant:
        """Return the store's time."""
        ...

    def rows(self, statement: str, *parameters: Any) -> Sequence[Any]:
        """Run a statement of the database and return its rows."""
        ...

    def array(self, keys: Collection[int]) -> Any:
        """Convert keys for the database's statements."""
        ...

    def columns(self, rows: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Convert rows, at least one, for the database's statements."""
        ...

    def draw(self, table: str, count: int) -> Sequence[int]:
        """Return keys for new rows of a table."""
        ...

    def lock_hold(self, hold_id: str) -> None:
        """Make others that reserve by this id wait for the end of the transaction."""
        ...

    def hit(self, moment: str) -> None:
        """Pass a failpoint."""
        ...


class SubmitTx(LedgerTx, Protocol):
    """A transaction that also stores jobs."""

    def submit(self, jobs: Sequence[NewJob]) -> Sequence[Submitted]:
        """Store jobs, or return those with the same idempotency keys."""
        ...


class Holder(NamedTuple):
    """The owner of a hold: a generation of a job, or a reservation by its id."""

    charges: Sequence[Charge]
    job: int | None = None
    generation: int = 0
    id: str | None = None
    expires_at: Instant | None = None


class _Hold(NamedTuple):
    """A stored hold, with the usage of its job."""

    seq: int
    job: int
    account: int
    unit: str
    amount: int
    used: int | None
    """Of an open hold: the usage of its job, if it exceeds or equals the amount."""
    calls: int
    known: int
    """The usage since the job last waited."""
    unknown: int
    earlier: int | None
    """The usage until the job last waited; `None`: it never waited."""
    resumes_with: int | None
    """
    The amount to reserve again before the next call; `None`: the job does not wait.
    """

    @property
    def booked(self) -> int:
        """The amount that is held, or the known usage if that is higher."""
        return max(self.amount, self.used or 0)

    @property
    def expected(self) -> int:
        """The amount that is held, or will be when the job resumes."""
        return self.amount if self.resumes_with is None else self.resumes_with

    def actual(self, *, succeeded: bool) -> tuple[int, bool]:
        """Return the amount to settle, and whether it is an estimate."""
        usage = self.calls, self.known, self.unknown
        return actual(self.expected, *usage, succeeded=succeeded)

    def settled(self, used: int) -> "list[_Entry]":
        """Return the entries that settle this hold with `used`."""
        overdrawn = self.booked - self.amount
        return [
            _Entry(self.account, self.seq, posting)
            for posting in settle(self.amount, used, overdrawn=overdrawn)
        ]


@contextmanager
def kept() -> Iterator[None]:
    """Convert any database error of the ledger into `StoreUnavailable`."""
    try:
        yield
    except (sqlite3.Error, sa.exc.DBAPIError) as error:
        raise StoreUnavailable("the ledger cannot be used") from error


def read_rules(connection: sa.Connection) -> Rules:
    """Read the budgets that are in force."""
    b = budgets.c
    query = sa.select(b.scope, b.unit, b.ceiling, b.per, b.value, b.overrun)
    with kept():
        rows = connection.execute(query).all()
    return Rules(budget_of(*row[:4], row.value or None, row.overrun) for row in rows)


def rules_of(tx: LedgerTx) -> Rules:
    """Return the budgets, reading them again if the cache has expired."""
    book = tx.rulebook
    return book.take(read_rules(tx.connection)) if book.is_stale else book.rules


def charge(tx: LedgerTx, new: Sequence[NewJob]) -> list[Sequence[Charge]] | None:
    """Set how many budgets apply to new jobs; return the charges, or `None`."""
    rules = rules_of(tx)
    if not rules:
        return None
    charges = _charges(rules, new, tx.now())
    for job, job_charges in zip(new, charges, strict=True):
        job.holds = len(job_charges)
    return charges if any(charges) else None


def _charges(
    rules: Rules, new: Sequence[NewJob], now: Instant
) -> list[Sequence[Charge]]:
    """Return the charges of each job; jobs of one request mostly have equal ones."""
    known: dict[tuple[Any, ...], Sequence[Charge]] = {}
    result = []
    for job in new:
        alike = (
            *(job.owner, job.key, job.capability),
            *(job.model, job.flow, job.tokens, job.money, job.never_refused),
        )
        if alike not in known:
            charges = rules.charges(job, now)
            if job.never_refused:
                charges = [charge._replace(amount=0) for charge in charges]
            known[alike] = charges
        result.append(known[alike])
    return result


def reserve(tx: LedgerTx, holders: Sequence[Holder], *, foreseen: bool = False) -> None:
    """
    Hold all charges of these holders, or raise `BudgetExhausted`.

    If deferred, it raises at the end of the transaction; with `foreseen` also at once,
    if the current balances leave no room.
    """
    wanted = [holder for holder in holders if holder.charges]
    if tx.deferred is None:
        _carry_out(tx, wanted)
        return
    if foreseen and wanted:
        _foresee(tx, [*tx.deferred.of(Holder, _Entry), *wanted])
    tx.deferred.add(wanted)


def finish(tx: LedgerTx) -> None:
    """Do the deferred work: check, hold and post, with the accounts locked."""
    if tx.deferred is not None:
        _carry_out(tx, tx.deferred.take(Holder, _Entry))
        ended = dict(tx.deferred.take(_Ended))
        if ended:
            _carry_out(tx, _closed(tx, ended))


def is_pending(tx: LedgerTx, hold_id: str) -> bool:
    """Say whether a hold with this id is deferred to the end of the transaction."""
    return tx.deferred is not None and any(
        holder.id == hold_id for holder in tx.deferred.of(Holder)
    )


def _foresee(tx: LedgerTx, acts: Sequence["Act"]) -> None:
    """Check like `_carry_out`, with balances that are read without a lock."""
    entries = [act for act in acts if isinstance(act, _Entry)]
    names = _names_of(tx, {entry.account for entry in entries})
    asked = {*_limits_of(acts), *(account for account, _ in names.values())}
    with kept():
        balances = {account: Balance() for account in asked} | _peek(tx, asked)
    _judge_in_turn(acts, balances, names, tx.now())


def submit_each(
    tx: SubmitTx, batches: Sequence[Sequence[NewJob]]
) -> list[Sequence[Submitted] | BudgetExhausted]:
    """Store the jobs of concurrent callers; a refusal concerns only one caller."""
    refusals = _judge(tx, batches) if len(batches) > 1 else [None] * len(batches)
    judged = zip(batches, refusals, strict=True)
    taken = [jobs for jobs, refused in judged if refused is None]
    stored = tx.submit(list(chain.from_iterable(taken))) if taken else ()
    answers = iter(as_given(taken, stored))
    return [next(answers) if refused is None else refused for refused in refusals]


def _judge(
    tx: LedgerTx, batches: Sequence[Sequence[NewJob]]
) -> list[BudgetExhausted | None]:
    """
    Return a refusal for each caller that exceeds a budget, in order.

    It locks nothing. Concurrent holds are noticed when the holds are made; then every
    caller is checked again separately. So are callers with idempotency keys, whose jobs
    may exist already.
    """
    refusals: list[BudgetExhausted | None] = [None] * len(batches)
    rules = rules_of(tx)
    if not rules:
        return refusals
    now = tx.now()
    wanted = {
        place: [*chain.from_iterable(_charges(rules, jobs, now))]
        for place, jobs in enumerate(batches)
        if all(job.idempotency_key is None for job in jobs)
    }
    accounts = {c.account for charges in wanted.values() for c in charges}
    if not accounts:
        return refusals
    with kept():
        balances = {account: Balance() for account in accounts} | _peek(tx, accounts)
    for place, charges in wanted.items():
        try:
            balances |= admit(balances, charges, now)
        except BudgetExhausted as refused:
            refusals[place] = refused
    return refusals


class _Entry(NamedTuple):
    account: int
    hold: int
    posting: Posting
    limit: int | None = None


class _Ended(NamedTuple):
    """A job that ended in the transaction that stored it, and whether it succeeded."""

    job: int
    succeeded: bool


Act = Holder | _Entry
Names = Mapping[int, tuple[Account, int]]
"""The name and limit of accounts, by their keys."""


def _carry_out(tx: LedgerTx, acts: Sequence[Act]) -> None:
    """Check holders in order, then write all holds and entries."""
    holders = [act for act in acts if isinstance(act, Holder)]
    entries = [act for act in acts if isinstance(act, _Entry)]
    now = tx.now() if acts else 0
    with kept():
        if holders:
            names = _names_of(tx, {entry.account for entry in entries})
            limits = dict(names.values()) | _limits_of(acts)
            seqs, balances = _lock(tx, limits)
            _judge_in_turn(acts, balances, names, now)
            entries += _hold(tx, holders, seqs)
        _write(tx, entries, now)
    if holders:
        tx.hit("ledger.reserved")


def _limits_of(acts: Iterable[Act]) -> dict[Account, int]:
    return {
        charge.account: charge.limit
        for act in acts
        if isinstance(act, Holder)
        for charge in act.charges
    }


def _names_of(tx: LedgerTx, seqs: Collection[int]) -> Names:
    """Read the names and limits of accounts: the name of a row never changes."""
    if not seqs:
        return {}
    a = accounts.c
    named = sa.select(
        *(a.seq, a.ceiling, a.scope, a.unit, a.per, a.tenant, a.value, a.window_at)
    )
    with kept():
        rows = tx.connection.execute(named.where(a.seq.in_(sorted(seqs)))).all()
    return {seq: (Account(*name), ceiling) for seq, ceiling, *name in rows}


def _judge_in_turn(
    acts: Iterable[Act], balances: dict[Account, Balance], names: Names, now: Instant
) -> None:
    """Admit holders in order, each after the entries before it."""
    for act in acts:
        if isinstance(act, Holder):
            balances |= admit(balances, act.charges, now)
        else:
            account, _ = names[act.account]
            balances[account] = post(balances[account], act.posting)


def _peek(tx: LedgerTx, asked: Iterable[Account]) -> dict[Account, Balance]:
    """Return the balances of these accounts, at least one, without a lock."""
    rows = tx.rows(tx.queries.list_accounts, *tx.columns(sorted(asked)))
    return {Account(*row[:6]): Balance(*row[6:]) for row in rows}


def _lock(
    tx: LedgerTx, limits: Mapping[Account, int]
) -> tuple[dict[Account, int], dict[Account, Balance]]:
    asked = [(*account, limit) for account, limit in sorted(limits.items())]
    rows = tx.rows(tx.queries.lock_accounts, *tx.columns(asked))
    seqs = {Account(*row[:6]): row[6] for row in rows}
    return seqs, {Account(*row[:6]): Balance(*row[7:]) for row in rows}


def _hold(
    tx: LedgerTx, holders: Iterable[Holder], seqs: Mapping[Account, int]
) -> list[_Entry]:
    """Store holds; return their entries."""
    pairs = [(holder, charge) for holder in holders for charge in holder.charges]
    rows: list[tuple[Any, ...]] = []
    entries: list[_Entry] = []
    for seq, (holder, (account, limit, wanted)) in zip(
        tx.draw("holds", len(pairs)), pairs, strict=True
    ):
        here, amount = seqs[account], wanted or 0
        rows.append(
            (
                seq,
                holder.id,
                holder.job,
                holder.generation,
                here,
                amount,
                holder.expires_at,
            )
        )
        entries.append(_Entry(here, seq, Posting(Kind.RESERVED, amount), limit))
    tx.rows(tx.queries.insert_holds, *tx.columns(rows))
    return entries


def _post(tx: LedgerTx, entries: Sequence[_Entry]) -> None:
    """Write entries now, or at the end of the transaction."""
    if tx.deferred is not None:
        tx.deferred.add(entries)
    else:
        _carry_out(tx, entries)


def _write(tx: LedgerTx, entries: Sequence[_Entry], now: Instant) -> None:
    """Write entries, and change their accounts accordingly."""
    if not entries:
        return
    sums: Counter[tuple[int, Kind]] = Counter()
    for account, _, (kind, amount), _ in entries:
        sums[account, kind] += amount
    changes: defaultdict[int, Balance] = defaultdict(Balance)
    for (account, kind), amount in sums.items():
        changes[account] = post(changes[account], Posting(kind, amount))
    changed = [(seq, *change) for seq, change in sorted(changes.items())]
    tx.rows(tx.queries.post_accounts, *tx.columns(changed))
    rows = [
        (now, entry.account, entry.hold, *entry.posting, entry.limit)
        for entry in entries
    ]
    tx.rows(tx.queries.insert_entries, *tx.columns(rows))


def close(tx: LedgerTx, ended: Mapping[int, bool]) -> None:
    """Settle the holds of ended jobs; `ended` says which of them succeeded."""
    if not ended:
        return
    if tx.deferred is not None:
        # Holds of the same transaction that are not made yet are closed after they are.
        fresh = {holder.job for holder in tx.deferred.of(Holder)}
        tx.deferred.add(_Ended(*one) for one in ended.items() if one[0] in fresh)
        ended = {job: succeeded for job, succeeded in ended.items() if job not in fresh}
    if ended:
        _post(tx, _closed(tx, ended))
    tx.hit("ledger.closed")


def _closed(tx: LedgerTx, ended: Mapping[int, bool]) -> list[_Entry]:
    """Close the holds of ended jobs; return the entries of that."""
    with kept():
        rows = tx.rows(tx.queries.list_holds, tx.array(ended), True)
        closing = [
            (hold, *hold.actual(succeeded=ended[hold.job]))
            for hold in map(_Hold._make, rows)
        ]
        _mark(tx, [(hold.seq, used, is_guess) for hold, used, is_guess in closing])
    return [entry for hold, used, _ in closing for entry in hold.settled(used)]


_OPEN = (
    sa.select(holds.c.seq)
    .where(holds.c.job.in_(sa.bindparam("jobs", expanding=True)))
    .where(holds.c.job.is_not(None), holds.c.is_open)
    .order_by(holds.c.seq)
    .with_for_update()
)
_NOTE = (
    holds.update()
    .where(holds.c.seq == sa.bindparam("of"))
    .values(used=sa.bindparam("n"))
)


def book_used(tx: LedgerTx, seqs: Collection[int]) -> None:
    """
    Book the usage of open jobs beyond their holds, as overdraft.

    Their holds are locked first, so the second of two bookings for one job sees the
    first.
    """
    if not seqs:
        return
    with kept():
        if not tx.connection.execute(_OPEN, {"jobs": sorted(seqs)}).all():
            return
        rows = tx.rows(tx.queries.list_holds, tx.array(seqs), True)
        spent = [
            hold
            for hold in map(_Hold._make, rows)
            if hold.calls and hold.known >= hold.booked
        ]
        if spent:
            notes = [{"of": hold.seq, "n": hold.known} for hold in spent]
            tx.connection.execute(_NOTE, notes)
        postings = [
            _Entry(hold.account, hold.seq, Posting(Kind.OVERDRAWN, beyond))
            for hold in spent
            if (beyond := hold.known - hold.booked)
        ]
        _post(tx, postings)


_SHRINK = (
    holds.update()
    .where(holds.c.seq == sa.bindparam("of"))
    .values(
        amount=0,
        used=None,
        earlier=sa.bindparam("used_before"),
        resumes_with=sa.bindparam("rest"),
    )
)


def shrink(tx: LedgerTx, seqs: Collection[int]) -> None:
    """
    Settle the usage of jobs that begin to wait, and release the rest of their holds.

    The amount that they may still use is stored, and `resume` reserves it again. An
    empty hold, whose job has no estimate, stays as it is.
    """
    if not seqs:
        return
    with kept():
        rows = tx.rows(tx.queries.list_holds, tx.array(seqs), True)
        settled = [
            (hold, hold.actual(succeeded=False)[0])
            for hold in map(_Hold._make, rows)
            if hold.amount or hold.earlier is not None
        ]
        if settled:
            changes = [
                {
                    "of": hold.seq,
                    "used_before": (hold.earlier or 0) + hold.known,
                    "rest": max(0, hold.expected - used),
                }
                for hold, used in settled
            ]
            tx.connection.execute(_SHRINK, changes)
        _post(tx, [entry for hold, used in settled for entry in hold.settled(used)])


_RESUME = (
    holds.update()
    .where(holds.c.seq == sa.bindparam("of"))
    .values(
        account=sa.bindparam("here"),
        amount=sa.bindparam("granted"),
        used=None,
        earlier=sa.bindparam("used_before"),
        resumes_with=None,
    )
)


def resume(tx: LedgerTx, job: int) -> None:
    """
    Reserve again what a job that waited may still use, in the current windows.

    The caller has locked the job. Raises `BudgetExhausted` and reserves nothing if one
    of its budgets allows no further call.
    """
    rules, now = rules_of(tx), tx.now()
    with kept():
        rows = tx.rows(tx.queries.list_holds, tx.array([job]), True)
        holds = map(_Hold._make, rows)
        waiting = [hold for hold in holds if hold.resumes_with is not None]
        # Usage while the job waited, normally none, counts in the window of the old
        # hold.
        entries = [entry for hold in waiting for entry in hold.settled(hold.known)]
        names = _names_of(tx, {hold.account for hold in waiting})
        asked = {
            hold.seq: rules.resumption(names[hold.account][0], hold.expected, now)
            for hold in waiting
        }
        wanted = [one for one in asked.values() if one is not None]
        limits = dict(names[entry.account] for entry in entries)
        limits |= {charge.account: charge.limit for charge, _ in wanted}
        seqs, balances = _lock(tx, limits) if limits else ({}, {})
        _judge_in_turn(entries, balances, names, now)
        granted = readmit(balances, wanted, now)
        changes: list[dict[str, int]] = []
        for hold in waiting:
            one, here, amount = asked[hold.seq], hold.account, 0
            if one is not None:
                account, limit, _ = one.charge
                here, amount = seqs[account], granted[account]
                posting = Posting(Kind.RESERVED, amount)
                entries.append(_Entry(here, hold.seq, posting, limit))
            used = (hold.earlier or 0) + hold.known
            change = {"of": hold.seq, "here": here, "granted": amount}
            changes.append(change | {"used_before": used})
        if changes:
            tx.connection.execute(_RESUME, changes)
        _write(tx, entries, now)
    tx.hit("ledger.resumed")


def book_late(tx: LedgerTx, seqs: Collection[int]) -> None:
    """Book usage of jobs that became known after their holds were settled."""
    with kept():
        rows = tx.rows(tx.queries.list_holds, tx.array(seqs), False)
        late = [
            hold for hold in map(_Hold._make, rows) if hold.known > (hold.used or 0)
        ]
        postings = [
            _Entry(
                hold.account,
                hold.seq,
                Posting(Kind.OVERDRAWN, hold.known - (hold.used or 0)),
            )
            for hold in late
        ]
        _mark(tx, [(hold.seq, hold.known, bool(hold.unknown)) for hold in late])
        _post(tx, postings)


class Closing(NamedTuple):
    """How to close a hold without a job; `used` is `None` to release it."""

    seq: int
    account: int
    held: int
    used: int | None
    is_estimated: bool


def settle_holds(tx: LedgerTx, closings: Sequence[Closing]) -> None:
    """Settle or release holds without a job."""
    entries = [
        _Entry(closing.account, closing.seq, posting)
        for closing in closings
        for posting in settle(closing.held, closing.used or 0)
    ]
    _mark(tx, [(hold.seq, hold.used, hold.is_estimated) for hold in closings])
    _post(tx, entries)


def _mark(tx: LedgerTx, rows: Sequence[tuple[int, int | None, bool]]) -> None:
    if rows:
        tx.rows(tx.queries.close_holds, *tx.columns(sorted(rows)))


class _Retried(NamedTuple):
    """A retried job, with the data for its charges."""

    owner: Owner
    capability: str
    model: str | None
    flow: int | None
    tokens: int | None
    money: int | None
    key: str | None


def renew(tx: LedgerTx, seqs: Collection[int]) -> None:
    """Hold again for retried jobs, in their current generation."""
    rules = rules_of(tx)
    if not rules or not seqs:
        return
    now = tx.now()
    with kept():
        keys, moneys = _known(tx, seqs)
        c = jobs.c
        rows = tx.connection.execute(
            sa.select(
                *(c.seq, c.generation, c.holds, c.tenant, c.user),
                *(c.capability, c.model, c.flow, c.tokens),
            )
            .where(c.seq.in_(seqs))
            .order_by(c.seq)
        )
        holders: list[Holder] = []
        counts: list[dict[str, int]] = []
        for row in rows:
            payer = _Retried(
                owner=Owner(row.tenant, row.user),
                capability=row.capability,
                model=row.model,
                flow=row.flow,
                tokens=row.tokens,
                money=moneys.get(row.seq),
                key=keys.get(row.seq),
            )
            charges = rules.charges(payer, now)
            holders.append(Holder(charges, row.seq, row.generation))
            if row.holds != len(charges):
                counts.append({"of": row.seq, "n": len(charges)})
        if counts:
            recount = jobs.update().where(c.seq == sa.bindparam("of"))
            tx.connection.execute(recount.values(holds=sa.bindparam("n")), counts)
    reserve(tx, holders)


def _known(
    tx: LedgerTx, seqs: Collection[int]
) -> tuple[dict[int, str], dict[int, int]]:
    """Return data of jobs from their earlier holds: API keys and money."""
    rest = sa.func.coalesce(holds.c.resumes_with, holds.c.amount)
    estimate = sa.func.coalesce(holds.c.earlier, 0) + rest
    joined = sa.select(holds.c.job, accounts.c.scope, accounts.c.unit, accounts.c.value)
    rows = tx.connection.execute(
        joined.add_columns(estimate.label("amount"))
        .join(accounts, accounts.c.seq == holds.c.account)
        .where(holds.c.job.in_(seqs))
        .where(sa.or_(accounts.c.scope == "key", accounts.c.unit == "money"))
    ).all()
    keys = {row.job: row.value for row in rows if row.scope == "key"}
    return keys, {row.job: row.amount for row in rows if row.unit == "money"}


def is_charged(rules: Rules, payers: Iterable[Payer]) -> bool:
    """Say whether any of these payers has a charge."""
    return bool(rules) and any(rules.charges(payer, 0) for payer in payers)
