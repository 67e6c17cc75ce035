"""
Budgets: what may be spent, by whom, in which window, and the arithmetic of it.

A job holds what it is expected to cost from its submit to its end; what it did cost is
settled against that hold, and the rest is released. So nobody is admitted on what
somebody else was promised: `settled - overdraft + held <= limit` at every instant. Use
beyond a hold cannot be undone. It is booked as overdraft as soon as it is known, while
the job runs, and is part of what is settled: so it counts against the next admission,
and against the next call of the job itself.

Windows are fixed: they begin at whole multiples of their length, by the store's clock.
Money is counted in whole micro-dollars.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from backburner.domain.costs.usage import MICRO, dollars
from backburner.domain.errors import (
    BudgetExhausted,
    ConfigurationError,
    HoldExhausted,
)
from backburner.domain.jobs.job import Instant, Owner

MOST: Final = 2**53
"""The largest amount: what JSON readers take for a whole number."""
LONGEST_VALUE: Final = 400
_MILLISECOND = timedelta(milliseconds=1)


class Scope(StrEnum):
    """What a budget is counted by."""

    TENANT = "tenant"
    USER = "user"
    """A user of a tenant: `tenant/user`."""
    KEY = "key"
    """The API key that a job was submitted with."""
    CAPABILITY = "capability"
    """Of all tenants together."""
    MODEL = "model"
    """Of all tenants together."""
    FLOW = "flow"


class Overrun(StrEnum):
    """What becomes of a job that has used up what was held for it."""

    EXTEND = "extend"
    """Its next call may use more, if the budget has something left."""
    STOP = "stop"
    """It may make no further call."""


class Unit(StrEnum):
    """What is counted."""

    TOKENS = "tokens"
    MONEY = "money"


@dataclass(frozen=True, slots=True)
class Budget:
    """
    So many tokens, or so much money, in each window: for every value of a scope.

    With `of` it is for that one value, and takes the place of the general one.
    """

    scope: str
    tokens: int | None = None
    money: Decimal | None = None
    """In dollars."""
    per: timedelta = timedelta(days=1)
    of: str | None = None
    overrun: str = "extend"
    """Whether a job that has used up its hold may go on: see `Overrun`."""

    def __post_init__(self) -> None:
        if self.scope not in [*Scope]:
            raise ConfigurationError(
                f"a budget's scope is one of {', '.join(Scope)}, not {self.scope!r}"
            )
        if self.overrun not in [*Overrun]:
            raise ConfigurationError(
                f"a budget's overrun is one of {', '.join(Overrun)}, "
                f"not {self.overrun!r}"
            )
        if (self.tokens is None) == (self.money is None):
            raise ConfigurationError(
                "a budget is in tokens or in money: give exactly one"
            )
        if not 0 <= self.limit <= MOST:
            raise ConfigurationError("a budget's limit is a whole number from 0")
        if self.per < timedelta(seconds=1):
            raise ConfigurationError("a budget's window is at least a second")
        if self.of is not None and not 0 < len(self.of) <= LONGEST_VALUE:
            raise ConfigurationError(
                f"what a budget is of has 1 to {LONGEST_VALUE} characters"
            )

    @property
    def tenant(self) -> str | None:
        """The tenant that it is for, as far as its own words say; else `None`."""
        if self.of is None or self.scope not in (Scope.TENANT, Scope.USER):
            return None
        if self.scope == Scope.TENANT:
            return self.of
        tenant, _, user = self.of.partition("/")
        # Both names may have slashes in them: then nobody can tell them apart.
        return None if "/" in user else tenant

    @property
    def unit(self) -> Unit:
        """What it counts."""
        return Unit.MONEY if self.tokens is None else Unit.TOKENS

    @property
    def limit(self) -> int:
        """How much of it there is: tokens, or micro-dollars."""
        if self.tokens is not None:
            return self.tokens
        return int((self.money or Decimal()) * MICRO)

    @property
    def window(self) -> int:
        """The window's length, in milliseconds."""
        return self.per // _MILLISECOND


def budget_of(
    scope: str,
    unit: str,
    limit: int,
    window: int,
    of: str | None,
    overrun: str = Overrun.EXTEND,
) -> Budget:
    """Return a budget by its parts, as they are stored."""
    per = timedelta(milliseconds=window)
    if unit == Unit.TOKENS:
        return Budget(scope, tokens=limit, per=per, of=of, overrun=overrun)
    money = Decimal(limit) / MICRO
    return Budget(scope, money=money, per=per, of=of, overrun=overrun)


class Payer(Protocol):
    """A job, or what else is charged: it says whose it is and what it may cost."""

    @property
    def owner(self) -> Owner:
        """The tenant and user that own it."""
        ...

    @property
    def capability(self) -> str | None:
        """What does it."""
        ...

    @property
    def model(self) -> str | None:
        """The model that it is expected to call."""
        ...

    @property
    def flow(self) -> int | None:
        """The flow that it is a step of."""
        ...

    @property
    def key(self) -> str | None:
        """The API key that it was asked for with."""
        ...

    @property
    def tokens(self) -> int | None:
        """What it is expected to use; `None`: nobody knows, 0: nothing at all."""
        ...

    @property
    def money(self) -> int | None:
        """The same in micro-dollars."""
        ...


class Account(NamedTuple):
    """One value of a scope in one window: what is counted together."""

    scope: str
    unit: str
    per: int
    """The window's length, in milliseconds."""
    tenant: str
    """Whose it is; empty for what all tenants share."""
    value: str
    window: Instant
    """When the window begins."""


class Charge(NamedTuple):
    """What one budget holds for one payer."""

    account: Account
    limit: int
    amount: int | None
    """`None`: nobody knows; then nothing is held, but something must be left."""


class Resumption(NamedTuple):
    """What one budget is to hold for a job that goes on after a wait."""

    charge: Charge
    stops: bool
    """Whether the job may use no more than is held for it."""


class Rules:
    """The budgets that are in force, by what they are for."""

    def __init__(self, budgets: Iterable[Budget] = ()) -> None:
        self._by_scope: dict[str, dict[tuple[str, int], dict[str | None, int]]] = {}
        self._stops: set[tuple[str, str, int, str | None]] = set()
        for budget in budgets:
            same = self._by_scope.setdefault(budget.scope, {})
            limits = same.setdefault((budget.unit, budget.window), {})
            limits[budget.of] = budget.limit
            if budget.overrun == Overrun.STOP:
                self._stops.add((budget.scope, budget.unit, budget.window, budget.of))

    def __bool__(self) -> bool:
        return bool(self._by_scope)

    def limit(self, account: Account, *, otherwise: int) -> int:
        """Return what an account may use; if no budget says, `otherwise`."""
        same = self._by_scope.get(account.scope, {})
        limits = same.get((account.unit, account.per), {})
        return limits.get(account.value, limits.get(None, otherwise))

    def stops(self, account: Account) -> bool:
        """Say whether a job that has used up its hold may make no further call."""
        same = self._by_scope.get(account.scope, {})
        of: str | None = account.value
        if of not in same.get((account.unit, account.per), {}):
            of = None
        return (account.scope, account.unit, account.per, of) in self._stops

    def resumption(
        self, account: Account, rest: int, now: Instant
    ) -> "Resumption | None":
        """Return what a job that waited reserves now; `None`: that budget is gone."""
        here = account._replace(window=window_start(now, account.per))
        limit = self.limit(here, otherwise=-1)
        if limit < 0:
            return None
        return Resumption(Charge(here, limit, rest), self.stops(here))

    def charges(self, payer: Payer, now: Instant) -> list[Charge]:
        """Return what a payer is charged: nothing, if it costs nothing for sure."""
        if not self._by_scope or payer.tokens == 0:
            return []
        found: list[Charge] = []
        for scope, tenant, value in scopes_of(payer):
            for (unit, per), limits in self._by_scope.get(scope, {}).items():
                limit = limits.get(value, limits.get(None))
                if limit is None:
                    continue
                amount = payer.tokens if unit == Unit.TOKENS else payer.money
                start = window_start(now, per)
                account = Account(scope, unit, per, tenant, value, start)
                found.append(Charge(account, limit, amount))
        return found


def scopes_of(payer: Payer) -> list[tuple[Scope, str, str]]:
    """Return what a payer is counted by: scope, tenant and value of each."""
    tenant, user = payer.owner.tenant, payer.owner.user
    named: list[tuple[Scope, str, str | None]] = [
        (Scope.TENANT, tenant, tenant),
        (Scope.USER, tenant, f"{tenant}/{user}"),
        (Scope.KEY, tenant, payer.key),
        (Scope.CAPABILITY, "", payer.capability),
        (Scope.MODEL, "", payer.model),
        (Scope.FLOW, tenant, None if payer.flow is None else str(payer.flow)),
    ]
    return [(scope, whose, value) for scope, whose, value in named if value is not None]


def window_start(now: Instant, per: int) -> Instant:
    """Return when the window of an instant begins."""
    return now - now % per


class Balance(NamedTuple):
    """How far an account is used."""

    held: int = 0
    settled: int = 0
    """What was used, the overdraft included."""
    overdraft: int = 0
    """How much of that was beyond what was held."""

    def left(self, limit: int) -> int:
        """Return what may still be held."""
        return max(0, limit - self.settled - self.held)

    @property
    def admitted(self) -> int:
        """What admission let through: it never passes the limit."""
        return self.settled - self.overdraft + self.held


def admit(
    balances: Mapping[Account, Balance], charges: Sequence[Charge], now: Instant
) -> dict[Account, Balance]:
    """
    Hold all of the charges or none; return the balances that differ after it.

    Raises `BudgetExhausted` if one has no room.
    """
    after: dict[Account, Balance] = {}
    for account, limit, amount in charges:
        balance = after.get(account) or balances.get(account, Balance())
        left = balance.left(limit)
        if (amount or 0) > left or (amount is None and not left):
            raise exhausted(Charge(account, limit, amount), left, now)
        after[account] = balance._replace(held=balance.held + (amount or 0))
    return after


def readmit(
    balances: Mapping[Account, Balance], wanted: Sequence[Resumption], now: Instant
) -> dict[Account, int]:
    """
    Return what is held again for a job that goes on after a wait.

    A budget that lets jobs use more than their hold gives what it has left. Raises
    `BudgetExhausted` if it has nothing, or if one that does not has less than asked.
    """
    granted: dict[Account, int] = {}
    for charge, stops in wanted:
        account, limit, amount = charge
        balance, rest = balances.get(account, Balance()), amount or 0
        left = balance.left(limit)
        if stops and not 0 < rest <= left:
            raise hold_exhausted(charge, balance, now)
        if not left:
            raise exhausted(charge, left, now)
        granted[account] = min(rest, left)
    return granted


def exhausted(charge: Charge, left: int, now: Instant) -> BudgetExhausted:
    """Say which budget has no room, and when its window is over."""
    account = charge.account
    ends = account.window + account.per
    return BudgetExhausted(
        f"the {account.scope}'s budget has {amount(account.unit, left)} of "
        f"{amount(account.unit, charge.limit)} {unit_name(account.unit)} left",
        scope=account.scope,
        unit=account.unit,
        limit=charge.limit,
        left=left,
        per=account.per // 1000,
        retry_after=max(1, -(-(ends - now) // 1000)),
    )


def hold_exhausted(charge: Charge, balance: Balance, now: Instant) -> HoldExhausted:
    """Say which budget lets a job use no more than was held for it."""
    account = charge.account
    ends = account.window + account.per
    held = amount(account.unit, charge.amount or 0)
    left = balance.left(charge.limit)
    return HoldExhausted(
        f"the {account.scope}'s budget lets a job use what is held for it, here "
        f"{held} {unit_name(account.unit)}, and no more; it has "
        f"{amount(account.unit, left)} left",
        scope=account.scope,
        unit=account.unit,
        limit=charge.limit,
        left=left,
        per=account.per // 1000,
        retry_after=max(1, -(-(ends - now) // 1000)),
    )


def unit_name(unit: str) -> str:
    """Name what is counted, for a sentence."""
    return "tokens" if unit == Unit.TOKENS else "dollars"


def amount(unit: str, value: int) -> int | str | None:
    """Write an amount for readers: tokens as a number, dollars as a text."""
    return value if unit == Unit.TOKENS else dollars(value)


class Kind(StrEnum):
    """What an entry of the ledger does to its account."""

    RESERVED = "reserved"
    """Is held."""
    SETTLED = "settled"
    """Was held, is used."""
    RELEASED = "released"
    """Was held, is free again."""
    OVERDRAWN = "overdrawn"
    """Is used and was never held."""


class Posting(NamedTuple):
    """One entry of the ledger."""

    kind: Kind
    amount: int


def settle(held: int, actual: int, *, overdrawn: int = 0) -> list[Posting]:
    """
    Return what becomes of a hold when its actual cost is known.

    So much beyond it was `overdrawn` before, while its job ran.
    """
    postings = [
        Posting(Kind.SETTLED, min(held, actual)),
        Posting(Kind.RELEASED, max(0, held - actual)),
        Posting(Kind.OVERDRAWN, max(0, actual - held - overdrawn)),
    ]
    return [posting for posting in postings if posting.amount]


def actual(
    held: int, calls: int, known: int, unknown: int, *, succeeded: bool
) -> tuple[int, bool]:
    """
    Return what a hold is settled with, and whether that is an estimate.

    `calls` were told, which used `known`; how much `unknown` of them used nobody says.
    """
    if not calls:
        return (held, True) if succeeded else (0, False)
    return (max(held, known), True) if unknown else (known, False)


def post(balance: Balance, posting: Posting) -> Balance:
    """Return the balance after an entry."""
    held, settled, overdraft = balance
    amount = posting.amount
    match posting.kind:
        case Kind.RESERVED:
            return Balance(held + amount, settled, overdraft)
        case Kind.SETTLED:
            return Balance(held - amount, settled + amount, overdraft)
        case Kind.RELEASED:
            return Balance(held - amount, settled, overdraft)
        case Kind.OVERDRAWN:
            return Balance(held, settled + amount, overdraft + amount)


def replay(postings: Iterable[Posting]) -> Balance:
    """Return the balance that entries lead to, from nothing."""
    balance = Balance()
    for posting in postings:
        balance = post(balance, posting)
    return balance


class Reservation(NamedTuple):
    """What is held without a job."""

    id: str
    tokens_reserved: int
    window_start: Instant | None
    """The window that it is settled in, of the budget that is over first, if any."""


class BudgetState(NamedTuple):
    """How far an account is used, as operators see it."""

    account: Account
    limit: int
    balance: Balance
