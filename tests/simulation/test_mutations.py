"""Every protection is needed: without it, a seed finds a broken promise."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from backburner.domain.events.publication import Publication
from backburner.domain.jobs.outcome import Outcome
from backburner.domain.jobs.transitions import Change
from backburner.engine.run.attempt import Attempt
from backburner.engine.run.streaming import OutputStream
from backburner.engine.run.worker import Worker
from backburner.ports.store.jobs import Settlement
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.shared.publications import publish
from backburner.stores.shared.settling import event_json
from backburner.stores.shared.totals import count_ends
from backburner.stores.sqlite import statements
from backburner.stores.sqlite.store import SqliteStore
from backburner.stores.sqlite.transaction import Transaction
from backburner.stores.tables import jobs
from backburner.testing.simulation import Variant, simulate
from tests.simulation.mutation import HEALING, changed, first_seed_to_break, unmeasured

pytestmark = pytest.mark.thorough

NEVER = timedelta(days=1).total_seconds()
FENCE = " AND jobs.token = s.token"
NUMBER = " AND jobs.events = s.n - 1"


class SplitStore(SqliteStore):
    """Changes states in one transaction, tells and writes the rest in another."""

    async def settle(
        self, settlements: Sequence[Settlement]
    ) -> Sequence[Change | None]:
        bare = [s._replace(body=None, otherwise=None) for s in settlements]
        applied: Sequence[Change | None] = await self._write(settle_silently, bare)
        held = [s for s, change in zip(settlements, applied, strict=True) if change]
        await self._write(tell_late, held)
        return applied


def settle_silently(
    tx: Transaction, batches: Sequence[Sequence[Settlement]]
) -> Sequence[Sequence[Change | None]]:
    tx.queries = replace(
        tx.queries, insert_events="SELECT ?1", insert_state_events="SELECT ?1, ?2"
    )
    return statements.settle(tx, batches)


def tell_late(
    tx: Transaction, batches: Sequence[Sequence[Settlement]]
) -> Sequence[None]:
    for settlement in (s for batch in batches for s in batch):
        change = settlement.change
        tx.tell([(settlement.seq, change.event, change.at, event_json(change))])
        with suppress(ValueError):
            (settlement.body or id)(tx)
    return [None] * len(batches)


class Unpublished(Transaction):
    """Keeps events for later."""

    def publish(self, events: Sequence[Publication]) -> None:
        self.late.extend(events)


class LateStore(SqliteStore):
    """Publishes events in a transaction of their own, after that of their cause."""

    def begin(self, connection: sa.Connection) -> Transaction:
        tx = super().begin(connection)
        tx.__class__ = Unpublished
        tx.late = self.__dict__.setdefault("late", [])
        return tx

    async def settle(
        self, settlements: Sequence[Settlement]
    ) -> Sequence[Change | None]:
        applied = await super().settle(settlements)
        late, self.late = self.__dict__.get("late", []), []
        if late:
            await self.transact(lambda tx: publish(tx.connection, late))
        return applied


class LateCountingStore(SqliteStore):
    """Counts ends after the transaction that brings them, and may die in between."""

    async def settle(
        self, settlements: Sequence[Settlement]
    ) -> Sequence[Change | None]:
        applied: Sequence[Change | None] = await self._write(
            settle_uncounted, settlements
        )
        ended = [
            s.seq for s, change in zip(settlements, applied, strict=True) if change
        ]
        await self.internal_transaction(lambda tx: count_late(tx, ended))
        return applied


def settle_uncounted(
    tx: Transaction, batches: Sequence[Sequence[Settlement]]
) -> Sequence[Sequence[Change | None]]:
    tx.queries = replace(tx.queries, insert_totals="SELECT ?1")
    return statements.settle(tx, batches)


def count_late(tx: InternalTx, seqs: Sequence[int]) -> None:
    query = sa.select(jobs.c.queue, jobs.c.state).where(jobs.c.seq.in_(seqs))
    count_ends(tx, [(row.queue, row.state) for row in tx.connection.execute(query)])


MUTATIONS: dict[str, tuple[str, Callable[[], Variant]]] = {
    "no fence": ("I4", lambda: changed(FENCE, "", "settle_jobs", "finish_jobs")),
    "no fence for effects": ("I3", lambda: changed(FENCE, "", "finish_jobs")),
    "no fence for progress": (
        "I4",
        lambda: changed(FENCE + NUMBER, "", "report_notes"),
    ),
    "text told twice": ("text", lambda: changed(NUMBER, "", "report_notes")),
    "no fence for transactions": (
        "fence",
        lambda: changed("jobs.token = ?2", "?2 IS NOT NULL", "check_claim"),
    ),
    "no idempotency index": (
        "I7",
        lambda: Variant(schema=("DROP INDEX jobs_idempotency",)),
    ),
    "no re-announcement": ("I2", lambda: Variant(poll=NEVER)),
    "no rescue": ("I2", lambda: Variant(rescue_every=NEVER)),
    "events published later": ("events", lambda: Variant(store=LateStore)),
    "settlement split in two": ("I3", lambda: Variant(store=SplitStore)),
    "stale generation": (
        "I4",
        lambda: changed("AND jobs.generation = s.from_generation", "", "move_jobs"),
    ),
    "stale state": (
        "I4",
        lambda: changed("AND jobs.state = s.from_state", "", "move_jobs"),
    ),
    "crashes not counted": (
        "I5",
        lambda: changed(
            "coalesce(s.crashes, jobs.crashes)", "jobs.crashes", "settle_jobs"
        ),
    ),
    "expiry not asked at the claim": (
        "times",
        lambda: changed("coalesce(expires_at > ?3, 1)", "1", "claim_jobs"),
    ),
    "queued before its time": (
        "times",
        lambda: changed("run_at <= ?1", "run_at <= ?1 + 500", "promote_jobs"),
    ),
    "ends counted by settlements, not by jobs": (
        "totals",
        lambda: changed("value ->> 2", "1", "insert_totals"),
    ),
    "ends of waiting jobs not counted": (
        "totals",
        lambda: changed("seq, queue, state", "seq, queue, 'queued'", "move_jobs"),
    ),
    "ends counted in a transaction of their own": (
        "totals",
        lambda: Variant(store=LateCountingStore),
    ),
    "leases judged by an old clock": (
        "lease",
        lambda: changed("beat_at > ?3", "beat_at > min(?1, ?3)", "remove_dead_workers"),
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


def test_text_is_missed_if_an_attempt_is_settled_before_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hasten(
        _attempt: Attempt, _output_stream: OutputStream, outcome: Outcome
    ) -> Outcome:
        return outcome

    monkeypatch.setattr(Attempt, "_stored", hasten)

    assert first_seed_to_break("text", Variant()) is not None


def test_a_claim_whose_answer_was_lost_is_missed_if_it_is_not_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def forget(worker: Worker) -> None:
        worker._is_in_doubt = False

    monkeypatch.setattr(Worker, "_give_back", forget)

    assert first_seed_to_break("I2", Variant()) is not None


def test_nothing_is_broken_by_the_time_that_mutations_get() -> None:
    with unmeasured():
        broken = {
            seed: simulate(seed, Variant(healing=HEALING)).breaches
            for seed in range(20)
        }

    assert {} == {seed: told for seed, told in broken.items() if told}


def test_a_statement_that_is_none_is_no_mutation() -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        changed("jobs.token = s.token", "jobs.tokn = s.token", "settle_jobs")


def test_code_that_cannot_run_breaks_no_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unheard(_worker: Worker) -> None:
        raise AttributeError("no such thing")

    monkeypatch.setattr(Worker, "_give_back", unheard)

    with pytest.raises(AssertionError, match="the mutation does not run"):
        first_seed_to_break("I2", Variant())
