"""The contract of a store that keeps budgets and their ledger."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from backburner.domain.costs.budget import Balance, Budget, BudgetState, Reservation
from backburner.domain.errors import BudgetExhausted
from backburner.domain.jobs.job import Instant, Owner


class HoldRequest(NamedTuple):
    """What is to be held without a job."""

    id: str
    owner: Owner
    expires_at: Instant
    """When it frees itself."""
    tokens: int | None = None
    money: int | None = None
    """In micro-dollars."""
    capability: str | None = None
    model: str | None = None
    key: str | None = None
    flow: int | None = None


class Viewer(NamedTuple):
    """Whose accounts are seen: those of all, or what one caller is charged to."""

    owner: Owner | None = None
    key: str | None = None


class BudgetStore(Protocol):
    """
    Budgets and their ledger.

    What a job is charged is held by `submit` and settled when it ends, in the same
    transaction; what is here is the rest. A ledger that cannot be written refuses:
    `StoreUnavailable`. A budget that is new or changed holds in every process after
    half a second at most.
    """

    async def put_budgets(
        self, budgets: Sequence[Budget], *, is_declared: bool = False
    ) -> None:
        """
        Store budgets in place of those of the same scope, value, unit and window.

        What code declares does not take the place of what an operator put there.
        """
        ...

    async def drop_budget(self, budget: Budget) -> bool:
        """Take a budget away; what is held stays held until its end."""
        ...

    async def budgets(self) -> Sequence[Budget]:
        """Return the budgets, by scope and value."""
        ...

    async def accounts(self, viewer: Viewer, *, limit: int) -> Sequence[BudgetState]:
        """Return how far accounts are used whose window is now or which hold."""
        ...

    async def ledger_totals(self) -> Sequence[tuple[str, str, Balance]]:
        """Return what is held, settled and overdrawn in the windows of now."""
        ...

    async def reserve(self, ask: HoldRequest) -> Reservation:
        """Hold something, durable; asked again by the same id, it is held once."""
        ...

    async def settle_hold(
        self, hold_id: str, *, tokens: int | None = None, money: int | None = None
    ) -> bool:
        """
        Settle what is held with what was used, durable; say if it was not before.

        What was released or freed itself by then is booked as overdraft.
        """
        ...

    async def release_hold(self, hold_id: str) -> bool:
        """Free what is held, durable; say if anything was."""
        ...

    async def overspent(self, job: int) -> BudgetExhausted | None:
        """
        Say which budget has nothing left for a job that is not over.

        That is one that has used all that is held for it, where nothing more is left.
        """
        ...

    async def free_holds(self, *, limit: int) -> int:
        """Free what is held without a job and past its time; return how much."""
        ...

    async def forget_accounts(self, *, before: Instant, limit: int) -> int:
        """Delete accounts at rest whose windows began before a time; return it."""
        ...
