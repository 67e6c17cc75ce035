"""Every protection of the ledger is needed: without it, a seed finds it out."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from backburner.domain.costs.budget import Account, Balance, Charge
from backburner.domain.jobs.job import Instant, NewJob, Submitted
from backburner.stores.shared import (
    consequences,
    flow_extension,
    flows,
    ledger,
    reopening,
)
from backburner.stores.sqlite import statements
from backburner.stores.sqlite.store import SqliteStore
from backburner.stores.sqlite.transaction import Transaction
from backburner.testing.simulation import Variant
from tests.simulation.mutation import changed, first_seed_to_break

pytestmark = pytest.mark.thorough


def admit_anybody(
    balances: Mapping[Account, Balance], charges: Sequence[Charge], _now: Instant
) -> dict[Account, Balance]:
    after: dict[Account, Balance] = {}
    for account, _, amount in charges:
        balance = after.get(account) or balances[account]
        after[account] = balance._replace(held=balance.held + (amount or 0))
    return after


class CheckThenAdd(SqliteStore):
    """Looks whether there is room in one transaction, and takes it in the next."""

    async def submit(self, jobs: Sequence[NewJob]) -> Sequence[Submitted]:
        await self._write(check, jobs)
        answers: Sequence[Submitted] = await self._write(add, jobs)
        return answers


def check(tx: Transaction, batches: Sequence[Sequence[NewJob]]) -> Sequence[None]:
    for jobs in batches:
        charges = [c for found in ledger.charge(tx, jobs) or () for c in found]
        _, balances = ledger._lock(tx, {c.account: c.limit for c in charges})
        ledger.admit(balances, charges, tx.now())
    return [None] * len(batches)


def add(
    tx: Transaction, batches: Sequence[Sequence[NewJob]]
) -> Sequence[Sequence[Submitted]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "admit", admit_anybody)
        return statements.submit(tx, batches)


def test_check_then_add_is_noticed(
    record_property: Callable[[str, str], None],
) -> None:
    caught = first_seed_to_break("budget", Variant(store=CheckThenAdd))

    record_property("told", f"check then add: caught by seed {caught}")
    assert caught is not None


@pytest.mark.parametrize(
    ("part", "instead", "name"),
    [
        ("held = accounts.held + p.held, ", "", "post_accounts"),
        ("WHERE h.is_open = ?2", "WHERE ?2", "list_holds"),
        ("SET is_open = 0, ", "SET ", "close_holds"),
        ("u.generation = h.generation", "u.generation <> h.generation", "list_holds"),
    ],
)
def test_a_statement_that_does_less_is_noticed(
    part: str, instead: str, name: str
) -> None:
    assert first_seed_to_break("budget", changed(part, instead, name)) is not None


@pytest.mark.parametrize(
    "module",
    [consequences, flows, flow_extension],
    ids=["linking", "flows", "extending"],
)
def test_an_end_that_closes_no_hold_is_noticed(
    module: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "close", lambda _tx, _ended: None)

    assert first_seed_to_break("budget", Variant()) is not None


def test_a_retry_that_holds_nothing_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reopening, "renew", lambda _tx, _seqs: None)

    assert first_seed_to_break("budget", Variant()) is not None
