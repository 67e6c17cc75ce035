"""Budgets and holds that do not belong to a job."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal

from backburner.domain.costs.balance_history import AccountName, BalanceHistory
from backburner.domain.costs.budget import MOST, Budget, BudgetState, Reservation
from backburner.domain.costs.usage import MICRO
from backburner.domain.errors import BudgetExhausted
from backburner.domain.jobs.job import NewJob, Owner
from backburner.engine.observability import telemetry
from backburner.engine.submit.submission import LOCAL, Submission, refused_field
from backburner.ports.clock import Clock
from backburner.ports.store import Store
from backburner.ports.store.budgets import HoldRequest, Viewer
from backburner.ports.store.keys import AuditEntry

USUAL = timedelta(minutes=15)
"""The default lifetime of a hold without a job."""
PAGE = 1_000


class Budgets:
    """
    Budgets, and reservations outside of jobs.

    The cost of a job is reserved when it is submitted and settled when it ends, without
    these methods. They are for spending outside of jobs, and for operators.
    """

    def __init__(self, *, store: Store, clock: Clock, submission: Submission) -> None:
        self._store = store
        self._clock = clock
        self._submission = submission

    async def declare(self, budgets: Sequence[Budget]) -> None:
        """Store the budgets that the code declares; an operator's changes stay."""
        if budgets:
            await self._store.put_budgets(budgets, is_declared=True)

    async def put(self, budget: Budget, entry: AuditEntry | None = None) -> None:
        """Set a budget for all processes; the audit log records who did it."""
        if entry is not None:
            await self._store.record([entry])
        await self._store.put_budgets([budget])

    async def drop(self, budget: Budget, entry: AuditEntry | None = None) -> bool:
        """Delete a budget; return whether there was one."""
        if entry is not None:
            await self._store.record([entry])
        return await self._store.drop_budget(budget)

    async def list(self) -> Sequence[Budget]:
        """Return the budgets that are in force."""
        return await self._store.budgets()

    async def accounts(
        self, owner: Owner | None = None, key: str | None = None, *, limit: int = PAGE
    ) -> Sequence[BudgetState]:
        """Return the usage of all budgets, or of those that apply to one caller."""
        return await self._store.accounts(Viewer(owner, key), limit=limit)

    async def history(
        self, name: AccountName, owner: Owner | None = None, key: str | None = None
    ) -> BalanceHistory | None:
        """Return how an account changed in its current window, if it is shown."""
        return await self._store.account_history(Viewer(owner, key), name)

    async def reserve(  # noqa: PLR0913 - one argument per scope
        self,
        tokens: int | None = None,
        *,
        money: Decimal | None = None,
        owner: Owner = LOCAL,
        capability: str | None = None,
        model: str | None = None,
        key: str | None = None,
        lasts: timedelta = USUAL,
        id: str | None = None,  # noqa: A002 - as it is named everywhere
    ) -> Reservation:
        """
        Reserve tokens or dollars without a job; unsettled reservations expire.

        Raises `BudgetExhausted` if a budget has no room. A repeated `id` reserves once.
        """
        micro = None if money is None else int(money * MICRO)
        for amount in (tokens, micro):
            if amount is not None and not 0 <= amount <= MOST:
                raise refused_field("tokens", f"must be a whole number up to {MOST}")
        now = self._clock.now()
        ask = HoldRequest(
            id=id or self._submission.draw("hold", now),
            owner=owner,
            expires_at=now + lasts // timedelta(milliseconds=1),
            tokens=tokens,
            money=micro,
            capability=capability,
            model=model,
            key=key,
        )
        with counted():
            return await self._store.reserve(ask)

    async def hold(self, job: NewJob, *, lasts: timedelta) -> Reservation:
        """Reserve the cost of a job that runs without being stored, under its id."""
        ask = HoldRequest(
            id=job.id,
            owner=job.owner,
            expires_at=self._clock.now() + lasts // timedelta(milliseconds=1),
            tokens=job.tokens,
            money=job.money,
            capability=job.capability,
            model=job.model,
            key=job.key,
        )
        with counted():
            return await self._store.reserve(ask)

    async def settle(
        self, hold_id: str, tokens: int | None = None, *, money: Decimal | None = None
    ) -> bool:
        """
        Settle a reservation with the actual usage; return whether it was still open.

        An amount that is not given is taken to be the reserved one.
        """
        micro = None if money is None else int(money * MICRO)
        return await self._store.settle_hold(hold_id, tokens=tokens, money=micro)

    async def release(self, hold_id: str) -> bool:
        """Release a reservation; return whether anything was held."""
        return await self._store.release_hold(hold_id)


@contextmanager
def counted() -> Iterator[None]:
    """Count refusals by budgets in the metrics."""
    try:
        yield
    except BudgetExhausted as error:
        telemetry.budget_refused.labels(error.scope, error.unit).inc()
        raise
