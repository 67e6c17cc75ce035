"""
Budgets: limits on tokens or money per scope and window, and their arithmetic.

A job holds its expected cost from its submission to its end. Then its actual cost is
settled against that hold and the rest is released. So no job is admitted on an amount
that is reserved for another: `settled - overdraft + held <= limit` at every instant.
Use beyond a hold cannot be undone. It is recorded as overdraft as soon as it is known,
while the job runs, and is part of the settled amount: it counts against the next
admission, and against the next call of the job itself.

Windows are fixed: they begin at multiples of their length, by the store's clock.
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
"""The largest amount: JSON readers represent integers exactly up to here."""
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
    """One capability, over all tenants."""
    MODEL = "model"
    """One model, over all tenants."""
    FLOW = "flow"


class Overrun(StrEnum):
    """What happens to a job that has used up its hold."""

    EXTEND = "extend"
    """Its next call may use more, if the budget has something left."""
    STOP = "stop"
    """It may make no further call."""


class Unit(StrEnum):
    """The unit that a budget is counted in."""

    TOKENS = "tokens"
    MONEY = "money"


@dataclass(frozen=True, slots=True)
class Budget:
    """
    A limit on tokens or money per window, for each value of a scope.

    With `of`, it applies to that value only and overrides the general budget.
    """

    scope: str
    tokens: int | None = None
    money: Decimal | None = None
    """In dollars."""
    per: timedelta = timedelta(days=1)
    of: str | None = None
    overrun: str = "extend"
    """Whether a job may go on after it has used up its hold: see `Overrun`."""

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
                "a budget is in tokens or in money: give exactly one of them"
            )
        if not 0 <= self.limit <= MOST:
            raise ConfigurationError(
                f"a budget's limit must be from 0 to {MOST}, not {self.limit}"
            )
        if self.per < timedelta(seconds=1):
            raise ConfigurationError("a budget's window must be at least one second")
        if self.of is not None and not 0 < len(self.of) <= LONGEST_VALUE:
            raise ConfigurationError(
                f"the `of` of a budget must have 1 to {LONGEST_VALUE} characters"
            )

    @property
    def tenant(self) -> str | None:
        """The tenant that the budget is for, if `of` names one unambiguously."""
        if self.of is None or self.scope not in (Scope.TENANT, Scope.USER):
            return None
        if self.scope == Scope.TENANT:
            return self.of
        tenant, _, user = self.of.partition("/")
        # Both names may contain slashes: then they cannot be told apart.
        return None if "/" in user else tenant

    @property
    def unit(self) -> Unit:
        """The unit that it is counted in."""
        return Unit.MONEY if self.tokens is None else Unit.TOKENS

    @property
    def limit(self) -> int:
        """The limit per window, in tokens or micro-dollars."""
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
    """Return a budget from its stored parts."""
    per = timedelta(milliseconds=window)
    if unit == Unit.TOKENS:
        return Budget(scope, tokens=limit, per=per, of=of, overrun=overrun)
    money = Decimal(limit) / MICRO
    return Budget(scope, money=money, per=per, of=of, overrun=overrun)


class Payer(Protocol):
    """What is charged to budgets, such as a job: its owner and its expected cost."""

    @property
    def owner(self) -> Owner:
        """The tenant and user to charge."""
        ...

    @property
    def capability(self) -> str | None:
        """The capability that it runs."""
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
        """The API key that it was submitted with."""
        ...

    @property
    def tokens(self) -> int | None:
        """The tokens that it is expected to use; `None`: unknown, 0: it uses none."""
        ...

    @property
    def money(self) -> int | None:
        """The expected cost in micro-dollars; `None`: unknown."""
        ...


class Account(NamedTuple):
    """The counter of one value of a scope in one window."""

    scope: str
    unit: str
    per: int
    """The window's length, in milliseconds."""
    tenant: str
    """The tenant that it belongs to; empty if all tenants share it."""
    value: str
    window: Instant
    """When the window begins."""


class Charge(NamedTuple):
    """The amount that one budget holds for one payer."""

    account: Account
    limit: int
    amount: int | None
    """`None` if unknown: nothing is held then, but the budget must not be used up."""


class Resumption(NamedTuple):
    """The amount that one budget holds for a job that goes on after a wait."""

    charge: Charge
    stops: bool
    """Whether the job may use no more than its hold."""


class Rules:
    """The budgets in force, by scope."""

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
        """Return the limit of an account; `otherwise` if no budget applies to it."""
        same = self._by_scope.get(account.scope, {})
        limits = same.get((account.unit, account.per), {})
        return limits.get(account.value, limits.get(None, otherwise))

    def stops(self, account: Account) -> bool:
        """Return whether jobs that have used up their hold may make no further call."""
        same = self._by_scope.get(account.scope, {})
        of: str | None = account.value
        if of not in same.get((account.unit, account.per), {}):
            of = None
        return (account.scope, account.unit, account.per, of) in self._stops

    def resumption(
        self, account: Account, rest: int, now: Instant
    ) -> "Resumption | None":
        """Return what a job reserves after a wait; `None` if the budget is removed."""
        here = account._replace(window=window_start(now, account.per))
        limit = self.limit(here, otherwise=-1)
        if limit < 0:
            return None
        return Resumption(Charge(here, limit, rest), self.stops(here))

    def charges(self, payer: Payer, now: Instant) -> list[Charge]:
        """Return the charges of a payer; none if it is known to use nothing."""
        if not self._by_scope or payer.tokens == 0:
            return []
        charges: list[Charge] = []
        for scope, tenant, value in scopes_of(payer):
            for (unit, per), limits in self._by_scope.get(scope, {}).items():
                limit = limits.get(value, limits.get(None))
                if limit is None:
                    continue
                amount = payer.tokens if unit == Unit.TOKENS else payer.money
                start = window_start(now, per)
                account = Account(scope, unit, per, tenant, value, start)
                charges.append(Charge(account, limit, amount))
        return charges


def scopes_of(payer: Payer) -> list[tuple[Scope, str, str]]:
    """Return the scopes that a payer is counted in, each with tenant and value."""
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
    """Return the start of the window that contains an instant."""
    return now - now % per


class Balance(NamedTuple):
    """The amounts of an account."""

    held: int = 0
    settled: int = 0
    """What was used, including the overdraft."""
    overdraft: int = 0
    """The part of `settled` that was beyond the holds."""

    def left(self, limit: int) -> int:
        """Return how much can still be held."""
        return max(0, limit - self.settled - self.held)

    @property
    def admitted(self) -> int:
        """The amount that was admitted; it never exceeds the limit."""
        return self.settled - self.overdraft + self.held


def admit(
    balances: Mapping[Account, Balance], charges: Sequence[Charge], now: Instant
) -> dict[Account, Balance]:
    """
    Hold all of the charges or none; return the balances that change.

    Raises `BudgetExhausted` if one of the budgets has too little left.
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

    A budget whose overrun is `extend` grants what it has left. Raises
    `BudgetExhausted` if that is nothing, or if one whose overrun is `stop` has too
    little.
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
    """Return the error for a budget that has too little left in its window."""
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
    """Return the error for a budget that lets a job use no more than its hold."""
    account = charge.account
    ends = account.window + account.per
    held = amount(account.unit, charge.amount or 0)
    left = balance.left(charge.limit)
    return HoldExhausted(
        f"the {account.scope}'s budget lets a job use only what is held for it, here "
        f"{held} {unit_name(account.unit)}; the budget has "
        f"{amount(account.unit, left)} left",
        scope=account.scope,
        unit=account.unit,
        limit=charge.limit,
        left=left,
        per=account.per // 1000,
        retry_after=max(1, -(-(ends - now) // 1000)),
    )


def unit_name(unit: str) -> str:
    """Return the name of a unit, for messages."""
    return "tokens" if unit == Unit.TOKENS else "dollars"


def amount(unit: str, value: int) -> int | str | None:
    """Format an amount: tokens as a number, dollars as a text."""
    return value if unit == Unit.TOKENS else dollars(value)


class Kind(StrEnum):
    """What an entry of the ledger does to its account."""

    RESERVED = "reserved"
    """An amount becomes held."""
    SETTLED = "settled"
    """A held amount is used."""
    RELEASED = "released"
    """A held amount becomes free again."""
    OVERDRAWN = "overdrawn"
    """An amount that was never held is used."""


class Posting(NamedTuple):
    """One entry of the ledger."""

    kind: Kind
    amount: int


def settle(held: int, actual: int, *, overdrawn: int = 0) -> list[Posting]:
    """
    Return the entries that close a hold when its actual cost is known.

    `overdrawn` is the use beyond the hold that was recorded while the job ran.
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
    Return the amount to settle a hold with, and whether that is an estimate.

    `calls` were reported, with a total of `known`; `unknown` of them have no known use.
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
    """Return the balance that results from entries."""
    balance = Balance()
    for posting in postings:
        balance = post(balance, posting)
    return balance


class Reservation(NamedTuple):
    """An amount that is held without a job."""

    id: str
    tokens_reserved: int
    window_start: Instant | None
    """The window that it is settled in: that of the budget that ends first, if any."""


class BudgetState(NamedTuple):
    """The state of an account, as shown to operators."""

    account: Account
    limit: int
    balance: Balance
