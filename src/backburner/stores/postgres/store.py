"""The PostgreSQL store for many machines: a `Store` for `postgresql://` URLs."""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Sequence,
)
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from backburner.domain.costs.budget import Rules
from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.domain.events.event import Event
from backburner.domain.jobs import transitions
from backburner.domain.jobs.job import (
    Claim,
    Instant,
    Job,
    NewJob,
    Submitted,
)
from backburner.domain.jobs.step import StepResult
from backburner.domain.jobs.transitions import Change
from backburner.domain.jobs.wait import Signal, SignalAnswer, Signalled
from backburner.domain.queues.queue import QueueState
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults
from backburner.ports.finding import Finding
from backburner.ports.history import History
from backburner.ports.store.events import Note
from backburner.ports.store.jobs import ClaimRequest, Move, Settlement
from backburner.ports.store.maintenance import Retention
from backburner.ports.store.transactions import Tx
from backburner.ports.store.workers import Heart, WorkerInfo
from backburner.stores import migrations
from backburner.stores.move import notice
from backburner.stores.postgres import examination, migrating
from backburner.stores.postgres.advancing import advance_flows
from backburner.stores.postgres.committing import Committing
from backburner.stores.postgres.database import (
    Database,
    as_ours,
    driver,
    persist,
    translated,
    was_chosen,
)
from backburner.stores.postgres.heart import PostgresHeart
from backburner.stores.postgres.horizon import Horizon
from backburner.stores.postgres.limiting import Limit
from backburner.stores.postgres.notifier import PostgresNotifier
from backburner.stores.postgres.pipe import Many, Pipe
from backburner.stores.postgres.queries import Queries
from backburner.stores.postgres.rounds import Rounds
from backburner.stores.postgres.side import PostgresSide
from backburner.stores.postgres.statements import Statements, Transaction
from backburner.stores.shared import batches as batching
from backburner.stores.shared import flows as flowing
from backburner.stores.shared import (
    listing,
    queue_policies,
    retention,
    sharing,
)
from backburner.stores.shared.base import BaseStore
from backburner.stores.shared.budgets import forget_accounts
from backburner.stores.shared.consequences import InternalTx, ends, settle_consequences
from backburner.stores.shared.lanes import Act
from backburner.stores.shared.ledger import Rulebook, is_charged
from backburner.stores.shared.rows import as_events
from backburner.stores.shared.settling import KEY_LIFETIME_MS, event_json, turns
from backburner.stores.shared.usages import book_settled

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")

PRUNED_EVENTS = 20_000
"""About how many events are deleted by one statement."""


MOST_BODIES = 50
"""How many settlement bodies share a transaction, which holds all of their locks."""
FIRST_PROOF_SECONDS = 6.0
"""
How long a process waits in all for its first horizon; then readers get 0. Transactions
that write events are shorter, unless BACKBURNER_TRANSACTION_SECONDS is higher.
"""
PROOF_PAUSE_SECONDS = 0.01


class _BodyFailed(Exception):
    """A body raised its own error: its `OSError`, for example, is not the store's."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class PostgresStore(BaseStore):
    """Jobs in a PostgreSQL database, shared by any number of processes."""

    applies_in_order = False

    def __init__(
        self, url: str, *, queries: Queries | None = None, faults: Faults
    ) -> None:
        self.queries = queries or Queries.load()
        self._url = sa.make_url(url).set(drivername="postgresql")
        self._database = Database(url)
        self._faults = faults
        self.rulebook = Rulebook(_milliseconds)
        self._statements = Statements(self.queries, self.rulebook)
        self._shares = self._statements.shares
        self._submitting = Pipe(self._database, faults)
        self._claiming = Pipe(self._database, faults, is_durable=False)
        advance = advance_flows(self.queries)
        self._settling = Pipe(self._database, faults, function=advance)
        self._keeping = Pipe(self._database, faults)
        self._pacing = Pipe(self._database, faults, is_durable=False)
        self._kept = (
            self._submitting,
            self._claiming,
            self._settling,
            self._keeping,
            self._pacing,
        )
        self._horizon = Horizon()
        self._proof_until = 0.0
        self._horizons = Rounds(self._find_horizon)

    @classmethod
    def from_url(cls, url: str, clock: Clock, faults: Faults) -> Self:
        """Create a store from a `postgresql://` URL."""
        del clock  # the server's clock is used
        return cls(url, faults=faults)

    def notifier(self) -> PostgresNotifier:
        """Return the notifier of the processes that share this database."""
        return PostgresNotifier(self._database.dsn)

    def side(self) -> PostgresSide:
        """Return the access for a move, whether the store is open or not."""
        return PostgresSide(self._database, self._url, self.queries.remove_dead_workers)

    async def open(self) -> None:
        shown = self._url.set(query={}).render_as_string(hide_password=True)
        try:
            version = await self.version()
            if version is None:
                _, version = await self.migrate()
        except StoreUnavailable as error:
            raise ConfigurationError(f"BACKBURNER_STORE: {error}") from error
        if version != migrations.HEAD:
            raise ConfigurationError(
                f"BACKBURNER_STORE: {shown} is at schema {version}, this release needs "
                f"{migrations.HEAD}: run `backburner migrate`"
            )
        reason = await self.read(notice.why_closed)
        if reason is not None:
            raise ConfigurationError(f"BACKBURNER_STORE: {shown} {reason}")

    async def close(self) -> None:
        self._database.is_closed = True
        await self._horizons.close()
        for pipe in self._kept:
            await pipe.close()
        await self._database.dispose()

    async def ping(self) -> None:
        await self._run(self._keeping, "touch_store")

    async def version(self, history: History = migrations.ENGINE) -> str | None:
        return await self.read(lambda c: migrations.current(c, history))

    async def migrate(
        self, history: History = migrations.ENGINE
    ) -> tuple[str | None, str | None]:
        return await migrating.migrate(self._database, history)

    def examine(self, clock: Clock) -> AsyncIterator[Finding]:
        return examination.examine(self, self._database, clock)

    async def submit(self, jobs: Sequence[NewJob]) -> Sequence[Submitted]:
        if not jobs:
            return []
        if is_charged(await self._rules(), jobs):
            return await self._write(
                self._submitting, self._statements.submit_held, jobs
            )
        if any(job.idempotency_key is not None for job in jobs):
            return await self._write(
                self._submitting, self._statements.submit_keyed, jobs
            )
        return await self._write(self._submitting, self._statements.submit, jobs)

    async def _rules(self) -> Rules:
        if not self.rulebook.is_stale:
            return self.rulebook.rules
        return await self._write(self._submitting, self._statements.rules, None)

    async def claim(
        self,
        worker: str,
        token: str,
        claim_requests: Sequence[ClaimRequest],
        *,
        now: Instant,
    ) -> Sequence[Claim]:
        ask = (worker, token, claim_requests, now)
        return await self._write(self._claiming, self._statements.claim, ask)

    async def settle(
        self, settlements: Sequence[Settlement]
    ) -> Sequence[Change | None]:
        by_way: dict[Many | None, list[int]] = {}
        for index, settlement in enumerate(settlements):
            by_way.setdefault(self._statements.way(settlement), []).append(index)
        applied: list[Change | None] = [None] * len(settlements)
        for way, indexes in by_way.items():
            asks = [settlements[index] for index in indexes]
            answers = (
                await self._settle_with_bodies(asks)
                if way is None
                else await self._write(self._settling, way, asks)
            )
            for index, answer in zip(indexes, answers, strict=True):
                applied[index] = answer
        return applied

    async def move(self, moves: Sequence[Move]) -> Sequence[bool]:
        if any(move.consequences for move in moves):
            return await self._write(self._keeping, self._statements.move_linked, moves)
        return await self._write(self._keeping, self._statements.move, moves)

    async def internal_transaction(self, body: Callable[[InternalTx], T]) -> T:
        return await self._transact(body)

    async def signal(self, job: int, signal: Signal) -> Signalled:
        # Usually the job waits for it: that takes one statement.
        woken = transitions.signal(signal.name, now=0)
        asked = (job, signal.name, signal.value, signal.is_answer)
        row = (woken.event, event_json(woken))
        if await self._rows(self.queries.signal_waiting, *asked, *row):
            self._faults.hit("signal.stored")
            self._faults.hit("signal.woken")
            return Signalled(SignalAnswer.STORED, is_woken=True)
        return await super().signal(job, signal)

    async def transact(
        self,
        body: Callable[[Tx], T],
        *,
        claim: Claim | None = None,
        seconds: float | None = None,
    ) -> T:
        limit = None if seconds is None else Limit(seconds)
        if claim is None:
            return await self._commit("transact", body, limit=limit)

        def run(tx: Transaction) -> T:
            if seconds is not None:
                tx.limit(seconds)
            tx.require(claim)
            return body(tx)

        return await self._commit("transact_claimed", run, limit=limit)

    def aside(self, work: Callable[[], T]) -> T:
        # Bodies run in a greenlet on the event loop's thread.
        return await_only(asyncio.to_thread(work)) if in_greenlet() else work()

    async def snapshot(self, body: Callable[[sa.Connection], T]) -> T:
        async with self._database.connection() as connection:
            await connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            return await connection.run_sync(body)

    async def _transact(self, body: Callable[[Transaction], T]) -> T:
        return await self._commit("transact", body)

    async def queues(self) -> Sequence[QueueState]:
        [(now, has_any)] = await self._run(self._keeping, "has_policies")
        if not has_any:
            return []
        return await self.read(lambda c: queue_policies.listing(c, now))

    async def pace(self, act: Act) -> Any:
        return await self._write(self._pacing, self._statements.pace, act)

    async def read_clock(self) -> Instant:
        return await self._now()

    async def enlist(self, worker: WorkerInfo) -> None:
        await self._run(
            self._keeping,
            "enlist_worker",
            worker.id,
            worker.host,
            worker.pid,
            worker.slots,
            "\n".join(worker.queues),
            worker.started_at,
            worker.draining,
        )

    async def dismiss(self, worker: str) -> None:
        await self._run(self._keeping, "dismiss_worker", worker)

    def heart(self) -> Heart:
        return PostgresHeart(self._database.dsn, self.queries.beat_worker)

    async def orphans(self, *, lease: timedelta, limit: int) -> Sequence[Job]:
        span = lease // timedelta(milliseconds=1)
        await self._run(self._keeping, "remove_dead_workers", span)
        return await self.read(lambda c: listing.orphans(c, limit))

    async def held(self, worker: str) -> Sequence[tuple[int, str]]:
        rows = await self._rows(self.queries.list_held, worker)
        return [(seq, token) for seq, token in rows]

    async def report(self, notes: Sequence[Note]) -> None:
        await self._write(self._settling, self._statements.report, notes)

    async def save_plain_steps(self, results: Sequence[StepResult]) -> Sequence[bool]:
        return await self._write(self._settling, self._statements.save, results)

    async def news(
        self, cursors: Sequence[tuple[int, int]], *, limit: int
    ) -> Sequence[Event]:
        jobs, numbers = [job for job, _ in cursors], [n for _, n in cursors]
        rows = await self._rows(self.queries.list_news, jobs, numbers, limit)
        return as_events(rows)

    async def latest(self) -> int:
        return await self._horizons.join()

    async def _find_horizon(self) -> int:
        newest = await self._look()
        if self._horizon.is_news(newest):
            [(drawn,)] = await self._rows(self.queries.draw_transaction)
            self._horizon.note(newest, drawn)
            await self._look()
        if newest and not self._horizon.safe:
            await self._prove_first()
        return self._horizon.safe

    async def _prove_first(self) -> None:
        """
        Wait for transactions that had written events when this process began to look.

        Until one event is known to be safe the horizon is 0, and a reader that wants
        new events only would read the whole log.
        """
        clock = asyncio.get_running_loop().time
        self._proof_until = self._proof_until or clock() + FIRST_PROOF_SECONDS
        await self._prove_by_locks()
        while not self._horizon.safe and clock() < self._proof_until:
            await asyncio.sleep(PROOF_PAUSE_SECONDS)  # noqa: TID251 - no event to wait for
            await self._prove_by_locks()

    async def _prove_by_locks(self) -> None:
        """Look for the transactions that may still add events; leave out all others."""
        made = self._horizon.made
        [(oldest_writer,)] = await self._rows(self.queries.oldest_event_writer)
        self._horizon.pass_over(oldest_writer, made=made)

    async def _look(self) -> int:
        made = self._horizon.made
        [(newest, oldest_running)] = await self._rows(self.queries.event_horizon)
        self._horizon.pass_over(oldest_running, made=made)
        return int(newest)

    async def promote(self, *, now: Instant, limit: int) -> int:
        return await self._write(self._claiming, self._statements.promote, (now, limit))

    async def next_due(self) -> Instant | None:
        [(due,)] = await self._run(self._claiming, "next_due")
        return None if due is None else int(due)

    async def overdue(self, *, now: Instant, limit: int) -> Sequence[Job]:
        [(has_any,)] = await self._run(self._keeping, "has_overdue", now)
        if not has_any:
            return []
        return await super().overdue(now=now, limit=limit)

    async def prune(
        self, *, keep: Retention, now: Instant, limit: int
    ) -> Sequence[str]:
        # On its own connection, as deletions must not block the pipes and the pool.
        await self._commit("transact", batching.prune(keep, now, limit), alone=True)
        prune_flows = flowing.prune(keep, now, limit)
        steps = await self._commit("transact", prune_flows, alone=True)
        plain = [*await self._prune_plain(keep, now, limit)]
        for prune in (retention.prune_flows, retention.prune_jobs):
            body = prune(keep, now, limit)
            plain += await self._commit("transact", body, alone=True)
        await self._commit("transact", sharing.prune, alone=True)
        prune_events = queue_policies.prune(keep, now, limit)
        await self._commit("transact", prune_events, alone=True)
        return [*steps, *plain]

    async def _prune_plain(
        self, keep: Retention, now: Instant, limit: int
    ) -> Sequence[str]:
        """Delete jobs without a flow, in slices that commit on their own."""
        gone: list[str] = []
        async with self._database.alone() as connection:
            raw = await driver(connection)
            for state, span in zip(Retention._fields, keep, strict=True):
                before, left = now - span // timedelta(milliseconds=1), limit
                keyed = now - KEY_LIFETIME_MS
                while left > 0:
                    ask = (state, before, left, keyed, PRUNED_EVENTS)
                    self._faults.hit("prune.before_commit")
                    delete = partial(raw.fetch, self.queries.delete_jobs, *ask)
                    rows = await persist(delete)
                    self._faults.hit("prune.after_commit")
                    gone += [job_id for (job_id,) in rows]
                    left -= len(rows)
                    if not rows:
                        break
        return gone

    async def _settle_with_bodies(
        self, settlements: Sequence[Settlement]
    ) -> Sequence[Change | None]:
        """Settle jobs with bodies, many of them in each transaction."""
        answers: list[Change | None] = [None] * len(settlements)
        for turn in turns(settlements):
            indexes = sorted(turn.values(), key=lambda i: settlements[i].seq)
            for first in range(0, len(indexes), MOST_BODIES):
                part = indexes[first : first + MOST_BODIES]
                applied = await self._settle_together([settlements[i] for i in part])
                for index, answer in zip(part, applied, strict=True):
                    answers[index] = answer
        return answers

    async def _settle_together(
        self, settlements: Sequence[Settlement]
    ) -> Sequence[Change | None]:
        """
        Settle jobs in one transaction; if a body raises, in halves, down to that one.

        A savepoint for each body would cost two statements for each job that succeeds;
        this costs a few more transactions if one fails.
        """

        def run(tx: Transaction) -> Collection[int]:
            settled = tx.settle(settlements)
            ours = [s for s in settlements if s.seq in settled]
            book_settled(tx, ours, settled)
            tx.settling = settled
            for settlement in ours:
                _run_body(tx, settlement)
            settle_consequences(tx, ends(ours, settled))
            return settled

        try:
            settled = await self._commit("settle", run)
        except StoreUnavailable as error:
            # Bodies that share a transaction may deadlock with another one.
            if len(settlements) == 1 or not was_chosen(error):
                raise
            return await self._settle_halves(settlements)
        except Exception as error:  # noqa: BLE001 - the body's error, passed on to it
            if len(settlements) > 1:
                return await self._settle_halves(settlements)
            cause = error.cause if isinstance(error, _BodyFailed) else error
            return await self._settle_otherwise(settlements[0], cause)
        return [s.change if s.seq in settled else None for s in settlements]

    async def _settle_halves(
        self, settlements: Sequence[Settlement]
    ) -> Sequence[Change | None]:
        middle = len(settlements) // 2
        first = await self._settle_together(settlements[:middle])
        return [*first, *await self._settle_together(settlements[middle:])]

    async def _settle_otherwise(
        self, settlement: Settlement, cause: Exception
    ) -> Sequence[Change | None]:
        if settlement.otherwise is None:
            raise cause from cause.__cause__
        change = settlement.otherwise(cause)
        if change is None:
            return [None]
        return await self.settle(
            [settlement._replace(change=change, body=None, otherwise=None)]
        )

    async def forget_accounts(self, *, before: Instant, limit: int) -> int:
        body = partial(forget_accounts, before=before, limit=limit)
        return await self._commit("transact", body, alone=True)

    async def _commit(
        self,
        verb: str,
        body: Callable[[Transaction], T],
        *,
        alone: bool = False,
        limit: Limit | None = None,
    ) -> T:
        """
        Run a body in its own transaction, with the failpoints of its verb.

        `alone`: on its own connection and without a time limit, for bulk work. `limit`:
        end the body when its time is over.
        """
        run = Committing(self._begin, body, limit)
        lend = self._database.bulk if alone else self._database.transaction
        answer = await run.run(lend, lambda: self._faults.hit(f"{verb}.before_commit"))
        self._faults.hit(f"{verb}.after_commit")
        if run.tx is not None and run.tx.owed:
            # If this is lost, the transaction itself is committed nevertheless.
            with suppress(StoreUnavailable):
                await self._write(self._keeping, self._shares.pay_all, run.tx.owed)
        return answer

    def _begin(self, connection: sa.Connection) -> Transaction:
        return Transaction(connection, self.queries, self._faults, self.rulebook)

    async def _write(
        self,
        pipe: Pipe,
        many: Callable[[Pipe, Sequence[Q]], Awaitable[Sequence[A | Exception]]],
        argument: Q,
    ) -> A:
        answer: A = await pipe.run(many, argument)
        return answer

    async def _run(self, pipe: Pipe, name: str, *parameters: Any) -> list[Any]:
        ask = (getattr(self.queries, name), parameters)
        return await self._write(pipe, self._statements.execute, ask)

    async def _now(self) -> Instant:
        return int((await self._rows(self.queries.read_clock))[0][0])

    async def read(self, read: Callable[[sa.Connection], T]) -> T:
        async with self._database.connection() as connection:
            return await connection.run_sync(read)

    async def _rows(self, statement: str, *parameters: Any) -> list[Any]:
        async with self._database.connection() as connection:
            raw = await driver(connection)
            async with translated():
                found: list[Any] = await raw.fetch(statement, *parameters)
            return found


def _run_body(tx: Transaction, settlement: Settlement) -> None:
    if settlement.body is None:
        return
    try:
        settlement.body(tx)
    except sa.exc.DBAPIError:
        raise
    except StoreUnavailable as error:
        # The ledger raises this for every error: the database's own error counts.
        cause = error.__cause__
        if isinstance(cause, sa.exc.DBAPIError) and as_ours(cause) is not None:
            raise
        raise _BodyFailed(error) from error
    except Exception as error:
        raise _BodyFailed(error) from error


def _milliseconds() -> float:
    return asyncio.get_running_loop().time() * 1000
