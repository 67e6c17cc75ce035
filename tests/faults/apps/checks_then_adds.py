"""`spending` over stores that look whether there is room, and then take it."""

from collections.abc import Mapping, Sequence
from typing import Any

from spending import app

from backburner.domain.costs.budget import Account, Balance, Charge, Rules, admit
from backburner.domain.jobs.job import Instant
from backburner.ports.store.budgets import Viewer
from backburner.stores.postgres.store import PostgresStore
from backburner.stores.shared import ledger
from backburner.stores.sqlite.store import SqliteStore

__all__ = ["app"]


def admit_anybody(
    balances: Mapping[Account, Balance], charges: Sequence[Charge], _now: Instant
) -> dict[Account, Balance]:
    """Take the room, whether it is there or not."""
    return {
        account: balances[account]._replace(held=balances[account].held + (wanted or 0))
        for account, _, wanted in charges
    }


def checking(kind: type[Any]) -> None:
    """Have a store look before it stores."""
    submit = kind.submit

    async def look_and_submit(self: Any, jobs: Sequence[Any]) -> Any:
        rules = Rules(await self.budgets())
        for job in jobs:
            found = await self.accounts(Viewer(job.owner), limit=99)
            balances = {state.account: state.balance for state in found}
            now = next((state.account.window for state in found), 0)
            admit(balances, rules.charges(job, now), now)
        return await submit(self, jobs)

    kind.submit = look_and_submit


ledger.admit = admit_anybody
checking(SqliteStore)
checking(PostgresStore)
