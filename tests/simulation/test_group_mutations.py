"""Every protection of flows, batches and deliveries is needed: a seed finds out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from backburner.domain.groups.batch import Batch, BatchState
from backburner.domain.jobs.completion import followers
from backburner.domain.jobs.job import Instant, NewJob
from backburner.domain.jobs.transitions import Change
from backburner.domain.webhooks.delivery import Ended
from backburner.ports.store.jobs import Settlement
from backburner.stores.shared import batches, consequences, flows, reopening
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.sqlite import statements
from backburner.stores.sqlite.queries import Queries
from backburner.stores.sqlite.store import SqliteStore
from backburner.stores.sqlite.transaction import Transaction
from backburner.testing.simulation import Variant
from tests.simulation.mutation import changed, first_seed_to_break

pytestmark = pytest.mark.thorough


class LateStore(SqliteStore):
    """Settles jobs in one transaction and advances their flows in another."""

    async def settle(
        self, settlements: Sequence[Settlement]
    ) -> Sequence[Change | None]:
        bare = [settlement._replace(consequences=None) for settlement in settlements]
        applied = await super().settle(bare)
        ended = [
            settlement._replace(change=change)
            for settlement, change in zip(settlements, applied, strict=True)
            if change is not None
        ]
        ends = consequences.ends(ended, {settlement.seq for settlement in ended})
        await self.internal_transaction(
            lambda tx: consequences.settle_consequences(tx, ends)
        )
        return applied


class LateTransaction(Transaction):
    """Keeps deliveries for later."""

    aside: list[NewJob]


class ForgetfulStore(SqliteStore):
    """Makes deliveries after the transaction that ends what they tell of."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.aside: list[NewJob] = []

    def begin(self, connection: sa.Connection) -> Transaction:
        given = (self.queries, self._faults, self.rulebook, self._clock.now)
        tx = LateTransaction(connection, *given)
        tx.aside = self.aside
        return tx

    async def _write(self, many: Any, argument: Any, *, durable: bool = True) -> Any:
        answer = await super()._write(many, argument, durable=durable)
        later, self.aside[:] = self.aside[:], []
        if later:
            await super()._write(statements.submit, later)
        return answer


def deliver_later(tx: LateTransaction, told: Sequence[Ended], at: Instant) -> None:
    tx.aside += [job for ended in told for job in followers(ended, at)]


def deliver_nothing(_tx: InternalTx, _told: Sequence[Ended], _at: Instant) -> None:
    pass


def give_up_and_forget(tx: InternalTx, failed: Sequence[int], at: Instant) -> list[int]:
    give_up(tx, failed, at)
    return []


def end_at_once() -> Variant:
    """End a flow with any of its steps."""
    queries = Queries.load()
    text = queries.conclude_flows.replace("active = d.n", "1")
    text = text.replace("active > d.n", "0")
    assert text.count("active") == queries.conclude_flows.count("active") - 3
    return Variant(queries=replace(queries, conclude_flows=text))


def believe(tx: InternalTx, batch: int) -> Batch | None:
    """Take a batch for open because it was when somebody looked."""
    found = locked(tx, batch)
    return found and replace(found, state=BatchState.OPEN, sealed=True)


give_up, locked = consequences.give_up, batches._locked

MUTATIONS: dict[str, tuple[str, Callable[[], Variant]]] = {
    "advance after the settlement": ("I9", lambda: Variant(store=LateStore)),
    "two that end at once count as one": (
        "I9",
        lambda: changed("count(*) AS n", "1 AS n", "release_jobs"),
    ),
    "release on failure": (
        "I9",
        lambda: changed(" WHERE continues", "", "release_jobs"),
    ),
    "end with any step": ("I9", end_at_once),
    "give up who goes on regardless": (
        "I9",
        lambda: changed("WHERE NOT continues", "", "cancel_dependents"),
    ),
    "released before its time": (
        "times",
        lambda: changed("coalesce(run_at > ?3, 0)", "0", "release_jobs"),
    ),
}

PATCHES: dict[str, tuple[str, Callable[[], Variant], Any, str, Any]] = {
    "give up those next to it only": (
        "I9",
        Variant,
        consequences,
        "give_up",
        give_up_and_forget,
    ),
    "no recount when a step is retried": (
        "I9",
        Variant,
        reopening,
        "_RECOUNT",
        sa.text("UPDATE jobs SET open = open WHERE seq = :seq AND :open >= 0"),
    ),
    "a batch ends on an old look": ("I10", Variant, batches, "_locked", believe),
    "deliver after the settlement": (
        "I8",
        lambda: Variant(store=ForgetfulStore),
        consequences,
        "deliver",
        deliver_later,
    ),
    "completions after the settlement": (
        "I11",
        lambda: Variant(store=ForgetfulStore),
        consequences,
        "deliver",
        deliver_later,
    ),
    "no completion of what runs or waits alone": (
        "I11",
        Variant,
        consequences,
        "deliver",
        deliver_nothing,
    ),
    "no completion of what is cancelled as a whole": (
        "I11",
        Variant,
        flows,
        "deliver",
        deliver_nothing,
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_missing_protection_is_noticed(
    mutation: str, record_property: Callable[[str, str], None]
) -> None:
    promise, build = MUTATIONS[mutation]

    caught = first_seed_to_break(promise, build())

    record_property("told", f"{mutation}: {promise} broken in seed {caught}")
    assert caught is not None


@pytest.mark.parametrize("mutation", PATCHES)
def test_a_missing_line_is_noticed(
    mutation: str,
    record_property: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    promise, build, where, name, instead = PATCHES[mutation]
    monkeypatch.setattr(where, name, instead)

    caught = first_seed_to_break(promise, build())

    record_property("told", f"{mutation}: {promise} broken in seed {caught}")
    assert caught is not None
