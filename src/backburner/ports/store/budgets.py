"""The contract of a store that keeps budgets and their ledger."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from backburner.domain.costs.balance_history import AccountName, BalanceHistory
from backburner.domain.costs.budget import Balance, Budget, BudgetState, Reservation
from backburner.domain.errors import BudgetExhausted
from backburner.domain.jobs.job import Instant, Owner


class HoldRequest(NamedTuple):
    """A reservation without a job."""

    id: str
    owner: Owner
    expires_at: Instant
    """When it expires."""
    tokens: int | None = None
    money: int | None = None
    """In micro-dollars."""
    capability: str | None = None
    model: str | None = None
    key: str | None = None
    flow: int | None = None


class Viewer(NamedTuple):
    """Selects accounts: all, or those that one caller is charged to."""

    owner: Owner | None = None
    key: str | None = None


class BudgetStore(Protocol):
    """
    Budgets and their ledger.

    The cost of a job is reserved by `submit` and settled when the job ends, in the same
    transaction; these are the other operations. If the ledger cannot be written, they
    raise `StoreUnavailable`. A new or changed budget takes effect in every process
    within half a second.
    """

    async def put_budgets(
        self, budgets: Sequence[Budget], *, is_declared: bool = False
    ) -> None:
        """
        Store budgets; they replace those of the same scope, value, unit and window.

        Budgets declared in code do not replace budgets set by an operator.
        """
        ...

    async def drop_budget(self, budget: Budget) -> bool:
        """Delete a budget; existing holds stay until they end."""
        ...

    async def budgets(self) -> Sequence[Budget]:
        """Return the budgets, by scope and value."""
        ...

    async def accounts(self, viewer: Viewer, *, limit: int) -> Sequence[BudgetState]:
        """Return accounts of the current windows, and those with holds."""
        ...

    async def account_history(
        self, viewer: Viewer, name: AccountName
    ) -> BalanceHistory | None:
        """
        Return how an account changed in its current window.

        `None` if `accounts` does not show the viewer such an account.
        """
        ...

    async def ledger_totals(self) -> Sequence[tuple[str, str, Balance]]:
        """Return the held, settled and overdrawn amounts of the current windows."""
        ...

    async def reserve(self, ask: HoldRequest) -> Reservation:
        """Reserve an amount, durably; a repeated id reserves once."""
        ...

    async def settle_hold(
        self, hold_id: str, *, tokens: int | None = None, money: int | None = None
    ) -> bool:
        """
        Settle a hold with the actual usage, durably; return whether it was open.

        If it was released or has expired, the usage is recorded as overdraft.
        """
        ...

    async def release_hold(self, hold_id: str) -> bool:
        """Release a hold, durably; return whether anything was held."""
        ...

    async def overspent(self, job: int, token: str) -> BudgetExhausted | None:
        """
        Return the budget that lets a running job make no further call.

        This is the case if the job has used its whole hold and the budget has no room.
        For a job that has waited, the amount it released is reserved again first.
        """
        ...

    async def free_holds(self, *, limit: int) -> int:
        """Release expired holds that belong to no job; return how many."""
        ...

    async def forget_accounts(self, *, before: Instant, limit: int) -> int:
        """Delete unused accounts whose windows began before a time; return how many."""
        ...

    async def sample_accounts(self, *, limit: int) -> int:
        """
        Store the balances of accounts that have changed; return how many.

        An account gets at most one sample in each slot of its current window, and none
        if its balance is that of its latest sample or its window is short. If more than
        `limit` have changed, those with the smallest share left come first.
        """
        ...

    async def forget_samples(self, *, limit: int) -> int:
        """Delete samples of windows that have ended; return how many."""
        ...
