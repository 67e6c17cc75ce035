"""
The ledger on either database: what is held, settled, released and overdrawn.

A hold is made in the transaction that stores its job and closed in the one that ends
it. Accounts are locked, in the order of their names, before they are judged: whoever
comes second sees what the first was admitted. What cannot be written is refused.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa

from backburner.domain.budget import (
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
    settle,
)
from backburner.domain.errors import BudgetExhausted, StoreUnavailable
from backburner.domain.job import Instant, NewJob, Owner, Submitted
from backburner.stores.settling import as_given
from backburner.stores.tables import accounts, budgets, holds, jobs

REREAD_MS = 500
"""How long the budgets are believed: a new one is in force everywhere after that."""


class Rulebook:
    """The budgets as this process read them last."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._read_at: float | None = None
        self.rules = Rules()

    @property
    def is_stale(self) -> bool:
        """Whether they must be read again."""
        return self._read_at is None or self._now() - self._read_at >= REREAD_MS

    def take(self, rules: Rules) -> Rules:
        """Believe these for a while."""
        self.rules, self._read_at = rules, self._now()
        return rules

    def forget(self) -> None:
        """Have them read again: somebody changed them."""
        self._read_at = None


class LedgerTx(Protocol):
    """A transaction of either database, as far as the ledger needs it."""

    @property
    def connection(self) -> sa.Connection:
        """The database, for what is asked seldom."""
        ...

    @property
    def queries(self) -> Any:
        """The database's own statements."""
        ...

    @property
    def rulebook(self) -> Rulebook:
        """The budgets as this process knows them."""
        ...

    def now(self) -> Instant:
        """Return the store's time."""
        ...

    def rows(self, statement: str, *parameters: Any) -> Sequence[Any]:
        """Run a statement of the database and return its rows."""
        ...

    def array(self, keys: Collection[int]) -> Any:
        """Write keys as the database's statements take them."""
        ...

    def columns(self, rows: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Write rows, at least one, as the database's statements take them."""
        ...

    def draw(self, table: str, count: int) -> Sequence[int]:
        """Return keys for new rows of a table."""
        ...

    def hit(self, moment: str) -> None:
        """Pass a failpoint."""
        ...


class SubmitTx(LedgerTx, Protocol):
    """One that stores jobs, too."""

    def submit(self, jobs: Sequence[NewJob]) -> Sequence[Submitted]:
        """Store jobs, or find those that their keys stand for."""
        ...


class Holder(NamedTuple):
    """What holds: a job in one of its generations, or somebody by an id."""

    charges: Sequence[Charge]
    job: int | None = None
    generation: int = 0
    id: str | None = None
    expires_at: Instant | None = None


class _Hold(NamedTuple):
    """A hold as it is found, with what its job used."""

    seq: int
    job: int
    account: int
    unit: str
    amount: int
    used: int | None
    calls: int
    known: int
    unknown: int


@contextmanager
def kept() -> Iterator[None]:
    """Refuse if the ledger cannot be used, for whatever reason."""
    try:
        yield
    except (sqlite3.Error, sa.exc.DBAPIError) as error:
        raise StoreUnavailable("the ledger cannot be used") from error


def read_rules(connection: sa.Connection) -> Rules:
    """Read the budgets that are in force."""
    b = budgets.c
    query = sa.select(b.scope, b.unit, b.ceiling, b.per, b.value)
    with kept():
        rows = connection.execute(query).all()
    return Rules(budget_of(*row[:4], row.value or None) for row in rows)


def rules_of(tx: LedgerTx) -> Rules:
    """Return the budgets, read again if that was a while ago."""
    book = tx.rulebook
    return book.take(read_rules(tx.connection)) if book.is_stale else book.rules


def charge(tx: LedgerTx, new: Sequence[NewJob]) -> list[Sequence[Charge]] | None:
    """Note on new jobs how many budgets hold for them; return what, or `None`."""
    rules = rules_of(tx)
    if not rules:
        return None
    charges = _charges(rules, new, tx.now())
    for job, found in zip(new, charges, strict=True):
        job.holds = len(found)
    return charges if any(charges) else None


def _charges(
    rules: Rules, new: Sequence[NewJob], now: Instant
) -> list[Sequence[Charge]]:
    """Say what each is charged; those who come together are mostly alike."""
    known: dict[tuple[Any, ...], Sequence[Charge]] = {}
    found = []
    for job in new:
        alike = (
            *(job.owner, job.key, job.capability),
            *(job.model, job.flow, job.tokens, job.money),
        )
        if alike not in known:
            known[alike] = rules.charges(job, now)
        found.append(known[alike])
    return found


def reserve(tx: LedgerTx, holders: Sequence[Holder]) -> None:
    """Hold what all of them are charged, or raise `BudgetExhausted`."""
    limits = {c.account: c.limit for holder in holders for c in holder.charges}
    if not limits:
        return
    now = tx.now()
    with kept():
        seqs, balances = _lock(tx, limits)
        for holder in holders:
            balances |= admit(balances, holder.charges, now)
        _hold(tx, holders, seqs, now)
    tx.hit("ledger.reserved")


def submit_each(
    tx: SubmitTx, batches: Sequence[Sequence[NewJob]]
) -> list[Sequence[Submitted] | BudgetExhausted]:
    """Store the jobs of callers who come at once; each is refused for its own only."""
    refusals = _judge(tx, batches) if len(batches) > 1 else [None] * len(batches)
    told = zip(batches, refusals, strict=True)
    taken = [jobs for jobs, refused in told if refused is None]
    stored = tx.submit(list(chain.from_iterable(taken))) if taken else ()
    answers = iter(as_given(taken, stored))
    return [next(answers) if refused is None else refused for refused in refusals]


def _judge(
    tx: LedgerTx, batches: Sequence[Sequence[NewJob]]
) -> list[BudgetExhausted | None]:
    """
    Say which callers there is no room for, one after the other.

    Those with keys may stand for jobs that are there: they are judged when that is
    known, and then each by itself.
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
    limits = {c.account: c.limit for charges in wanted.values() for c in charges}
    if not limits:
        return refusals
    with kept():
        _, balances = _lock(tx, limits)
    for place, charges in wanted.items():
        try:
            balances |= admit(balances, charges, now)
        except BudgetExhausted as refused:
            refusals[place] = refused
    return refusals


def _lock(
    tx: LedgerTx, limits: Mapping[Account, int]
) -> tuple[dict[Account, int], dict[Account, Balance]]:
    asked = [(*account, limit) for account, limit in sorted(limits.items())]
    rows = tx.rows(tx.queries.lock_accounts, *tx.columns(asked))
    seqs = {Account(*row[:6]): row[6] for row in rows}
    return seqs, {Account(*row[:6]): Balance(*row[7:]) for row in rows}


def _hold(
    tx: LedgerTx, holders: Iterable[Holder], seqs: Mapping[Account, int], now: Instant
) -> None:
    pairs = [(holder, charge) for holder in holders for charge in holder.charges]
    rows: list[tuple[Any, ...]] = []
    postings: list[_Entry] = []
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
        postings.append(_Entry(here, seq, Posting(Kind.RESERVED, amount), limit))
    tx.rows(tx.queries.insert_holds, *tx.columns(rows))
    _post(tx, postings, now)


class _Entry(NamedTuple):
    account: int
    hold: int
    posting: Posting
    limit: int | None = None


def _post(tx: LedgerTx, found: Sequence[_Entry], now: Instant) -> None:
    """Write entries, and what they do to their accounts."""
    if not found:
        return
    sums: Counter[tuple[int, Kind]] = Counter()
    for account, _, (kind, amount), _ in found:
        sums[account, kind] += amount
    changes: defaultdict[int, Balance] = defaultdict(Balance)
    for (account, kind), amount in sums.items():
        changes[account] = post(changes[account], Posting(kind, amount))
    changed = [(seq, *change) for seq, change in sorted(changes.items())]
    tx.rows(tx.queries.post_accounts, *tx.columns(changed))
    rows = [
        (now, entry.account, entry.hold, *entry.posting, entry.limit) for entry in found
    ]
    tx.rows(tx.queries.insert_entries, *tx.columns(rows))


def close(tx: LedgerTx, ended: Mapping[int, bool]) -> None:
    """Settle what is held for jobs that ended: each with whether it succeeded."""
    if not ended:
        return
    with kept():
        rows = tx.rows(tx.queries.list_holds, tx.array(ended), True)
        _close(
            tx,
            [
                (hold, *actual(*hold[4:5], *hold[6:], succeeded=ended[hold.job]))
                for hold in map(_Hold._make, rows)
            ],
        )
    tx.hit("ledger.closed")


def book_late(tx: LedgerTx, seqs: Collection[int]) -> None:
    """Book what jobs are found to have used after what they held was settled."""
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
        _post(tx, postings, tx.now())


def _close(tx: LedgerTx, closing: Sequence[tuple[_Hold, int, bool]]) -> None:
    postings = [
        _Entry(hold.account, hold.seq, posting)
        for hold, used, _ in closing
        for posting in settle(hold.amount, used)
    ]
    _mark(tx, [(hold.seq, used, is_estimated) for hold, used, is_estimated in closing])
    _post(tx, postings, tx.now())


def settle_one(
    tx: LedgerTx,
    seq: int,
    account: int,
    held: int,
    used: int | None,
    *,
    is_estimated: bool,
) -> None:
    """Settle one hold of whoever holds without a job; `None` releases it."""
    postings = [_Entry(account, seq, posting) for posting in settle(held, used or 0)]
    _mark(tx, [(seq, used, is_estimated)])
    _post(tx, postings, tx.now())


def _mark(tx: LedgerTx, rows: Sequence[tuple[int, int | None, bool]]) -> None:
    if rows:
        tx.rows(tx.queries.close_holds, *tx.columns(rows))


class _Retried(NamedTuple):
    """A job that runs again, as it is charged."""

    owner: Owner
    capability: str
    model: str | None
    flow: int | None
    tokens: int | None
    money: int | None
    key: str | None


def renew(tx: LedgerTx, seqs: Collection[int]) -> None:
    """Hold again for jobs that are retried, in the generation that they are in now."""
    rules = rules_of(tx)
    if not rules or not seqs:
        return
    now = tx.now()
    with kept():
        keys, moneys = _known(tx, seqs)
        c = jobs.c
        found = tx.connection.execute(
            sa.select(
                *(c.seq, c.generation, c.holds, c.tenant, c.user),
                *(c.capability, c.model, c.flow, c.tokens),
            )
            .where(c.seq.in_(seqs))
            .order_by(c.seq)
        )
        holders: list[Holder] = []
        counts: list[dict[str, int]] = []
        for row in found:
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
    """Return what is known of jobs by their earlier holds: keys, and money."""
    joined = sa.select(holds.c.job, accounts.c.scope, accounts.c.unit, accounts.c.value)
    rows = tx.connection.execute(
        joined.add_columns(holds.c.amount)
        .join(accounts, accounts.c.seq == holds.c.account)
        .where(holds.c.job.in_(seqs))
        .where(sa.or_(accounts.c.scope == "key", accounts.c.unit == "money"))
    ).all()
    keys = {row.job: row.value for row in rows if row.scope == "key"}
    return keys, {row.job: row.amount for row in rows if row.unit == "money"}


def is_charged(rules: Rules, payers: Iterable[Payer]) -> bool:
    """Say whether any of them is charged anything."""
    return bool(rules) and any(rules.charges(payer, 0) for payer in payers)
