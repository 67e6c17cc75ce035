"""
The store's operations on a pipe: one statement each, for many callers at once.

A statement commits by itself; only idempotency keys and bodies need a transaction.
Batches are sorted by key, so that two of them cannot deadlock.
"""

from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from itertools import chain, starmap
from typing import Any, NamedTuple, TypeVar

import asyncpg
import sqlalchemy as sa

from backburner.domain.costs.budget import Charge, Rules, budget_of
from backburner.domain.errors import (
    BudgetExhausted,
    ClaimLost,
    IdempotencyConflict,
    StoreUnavailable,
)
from backburner.domain.jobs.job import (
    Claim,
    Instant,
    JobState,
    Need,
    NewJob,
    Submitted,
    first_state,
)
from backburner.domain.jobs.step import StepResult
from backburner.domain.jobs.transitions import Change
from backburner.domain.queues.fairness import Share, by_share, costs
from backburner.domain.queues.queue import Gate, admit, count
from backburner.ports.faults import Faults
from backburner.ports.store.events import Note
from backburner.ports.store.jobs import ClaimRequest, Move, Settlement
from backburner.ports.store.workers import WorkerLost
from backburner.stores.postgres.advancing import ADVANCE, OutputCache
from backburner.stores.postgres.database import TRIES, persist, said_by_driver
from backburner.stores.postgres.pipe import Many, Pipe
from backburner.stores.postgres.queries import Queries
from backburner.stores.postgres.shares import Shares
from backburner.stores.shared import (
    flows,
    lanes,
    ledger,
    sharing,
    steps,
)
from backburner.stores.shared.consequences import (
    Telling,
    deliver,
    ends,
    need_of,
    settle_consequences,
)
from backburner.stores.shared.deferral import INFO, Deferred
from backburner.stores.shared.grouped import SharedTx
from backburner.stores.shared.row_values import job_values, move_values, settle_values
from backburner.stores.shared.settling import (
    KEY_LIFETIME_MS,
    as_given,
    event_json,
    in_turn,
    turns,
    wait_json,
)
from backburner.stores.shared.sharing import (
    Taken,
    corrections,
    ended_waiting,
    forgo,
    refund,
    used_tokens,
)
from backburner.stores.shared.slots import UnusedSlots
from backburner.stores.shared.usages import Booked, book_settled

T = TypeVar("T")
Claiming = tuple[str, str, Sequence[ClaimRequest], Instant]
NEEDS = Claim._fields.index("needs")
_UNUSABLE = (asyncpg.UndefinedTableError, asyncpg.InsufficientPrivilegeError)


class Statements:
    """The store's operations over a pipe."""

    def __init__(self, queries: Queries, rulebook: ledger.Rulebook) -> None:
        self._queries = queries
        self._rulebook = rulebook
        self.shares = Shares(queries)
        self._output_cache = OutputCache()
        self._gated: Collection[str] = frozenset()
        """Queues that had limits when they were last read."""

    async def submit(
        self, pipe: Pipe, batches: Sequence[Sequence[NewJob]]
    ) -> Sequence[Sequence[Submitted]]:
        """Store the jobs of all callers; none has an idempotency key."""
        jobs = list(chain.from_iterable(batches))
        ranks = await self.shares.rank(pipe, jobs)
        if ranks is None:
            return as_given(batches, await self._submit_whole(pipe, jobs))
        await pipe.rows(self._queries.insert_jobs, *columns(jobs, ranks))
        return [[_submitted(job) for job in batch] for batch in batches]

    async def submit_keyed(
        self, pipe: Pipe, batches: Sequence[Sequence[NewJob]]
    ) -> Sequence[Sequence[Submitted]]:
        """Store the jobs of all callers, or find those with the same keys."""
        jobs = list(chain.from_iterable(batches))
        ranks = await self.shares.rank(pipe, jobs)
        if ranks is None:
            return as_given(batches, await self._submit_whole(pipe, jobs))

        async def store() -> Sequence[Submitted]:
            async with pipe.driver.transaction():
                return await self._submit_keyed(pipe, jobs, ranks)

        answers = await persist(store)
        pairs = zip(jobs, answers, strict=True)
        if known := [job for job, answer in pairs if answer.replayed]:
            await self.shares.pay(pipe, refund(known))
        return as_given(batches, answers)

    async def rules(self, pipe: Pipe, asks: Sequence[None]) -> Sequence[Rules]:
        """Read the budgets once for all callers."""
        try:
            rows = await pipe.rows(self._queries.list_budgets)
        except _UNUSABLE as error:
            raise StoreUnavailable("the ledger cannot be used") from error
        rules = self._rulebook.take(Rules(budget_of(*row) for row in rows))
        return [rules] * len(asks)

    async def submit_held(
        self, pipe: Pipe, batches: Sequence[Sequence[NewJob]]
    ) -> Sequence[Sequence[Submitted] | BudgetExhausted]:
        """Store the jobs of callers and hold their expected cost; refuse the others."""
        return await self.transact(pipe, lambda tx: ledger.submit_each(tx, batches))

    async def _submit_whole(
        self, pipe: Pipe, jobs: Sequence[NewJob]
    ) -> Sequence[Submitted]:
        return await self.transact(pipe, lambda tx: tx.submit(jobs))

    def _begin(self, connection: sa.Connection, pipe: Pipe) -> "Transaction":
        return Transaction(connection, self._queries, pipe.faults, self._rulebook)

    async def transact(self, pipe: Pipe, body: Callable[["Transaction"], T]) -> T:
        """Run a body in a transaction; charge the shares of its jobs after it."""
        begun: list[Transaction] = []

        def run(connection: sa.Connection) -> T:
            begun[:] = [self._begin(connection, pipe)]
            return begun[0].run(body)

        answer = await pipe.transact(run)
        await self.shares.pay(pipe, begun[0].owed)
        return answer

    async def _submit_keyed(
        self, pipe: Pipe, jobs: Sequence[NewJob], ranks: Sequence[int]
    ) -> Sequence[Submitted]:
        pairs = sorted(zip(jobs, ranks, strict=True), key=lambda pair: _key(pair[0]))
        ordered = [job for job, _ in pairs]
        inserted = columns(ordered, [rank for _, rank in pairs])
        rows = await pipe.rows(self._queries.insert_jobs, *inserted)
        stored = {row[0] for row in rows}
        known = {
            job.id: await self._known(pipe, job, rank)
            for job, rank in pairs
            if job.id not in stored
        }
        return [known.get(job.id) or _submitted(job) for job in jobs]

    async def _known(self, pipe: Pipe, job: NewJob, rank: int) -> Submitted:
        horizon = job.created_at - KEY_LIFETIME_MS
        for _ in range(TRIES):
            await pipe.rows(self._queries.free_idempotency_key, *_key(job), horizon)
            if found := await pipe.rows(self._queries.find_by_key, *_key(job)):
                return as_known(job, *found[0])
            if await pipe.rows(self._queries.insert_jobs, *columns([job], [rank])):
                return _submitted(job)
        raise _elusive()

    async def claim(
        self, pipe: Pipe, asks: Sequence[Claiming]
    ) -> Sequence[Sequence[Claim] | WorkerLost]:
        """Claim queued jobs for all workers; a lost worker gets its exception."""
        return [await self._claim(pipe, *ask) for ask in asks]

    async def _claim(
        self,
        pipe: Pipe,
        worker: str,
        token: str,
        claim_requests: Sequence[ClaimRequest],
        now: Instant,
    ) -> Sequence[Claim] | WorkerLost:
        """Claim jobs; if a queue gives none, check whether its limits are why."""
        claims: list[Claim] = []
        unused, has_looked = UnusedSlots(), False
        for request in claim_requests:
            queue, count = request.queue, unused.limit_of(request)
            ask = (pipe, worker, token, (queue, count), now)
            was_gated = queue in self._gated
            taken = () if was_gated else await self._take(*ask)
            if not taken and not has_looked:
                if not await self._read_gates(pipe, worker):
                    return claims or WorkerLost()
                has_looked = True
            if not taken and (was_gated or queue in self._gated):
                taken = await self._take_gated(*ask)
            claims += taken
            unused.took(request, count, len(taken))
        for wanted in unused.left():
            taken = await self._take_gated(pipe, worker, token, wanted, now)
            claims += taken
            unused.took_more(len(taken))
        return claims

    async def _take_gated(
        self,
        pipe: Pipe,
        worker: str,
        token: str,
        wanted: tuple[str, int],
        now: Instant,
    ) -> Sequence[Claim]:
        """Claim jobs of a queue with limits, or without if they were removed."""
        if wanted[0] not in self._gated:
            return await self._take(pipe, worker, token, wanted, now)
        async with pipe.driver.transaction():
            return await self._claim_gated(pipe, worker, token, wanted, now)

    async def _read_gates(self, pipe: Pipe, worker: str) -> bool:
        """Read which queues have limits; return whether the worker is enlisted."""
        found = await pipe.rows(self._queries.list_gates, worker)
        if found:
            self._gated = frozenset((found[0][0] or "").split("\n"))
        return bool(found)

    async def _take(
        self,
        pipe: Pipe,
        worker: str,
        token: str,
        wanted: tuple[str, int],
        now: Instant,
        *,
        is_locked: bool = False,
    ) -> Sequence[Claim]:
        """Claim jobs of a queue that has no limits, or whose lock is held."""
        asked = (token, worker, now, *wanted, is_locked)
        rows = await pipe.rows(self._queries.claim_jobs, *asked)
        steps = [row[0] for row in rows if row[NEEDS]]
        if steps:
            given = await self._given(pipe, rows, steps)
            rows = [(*row, given.get(row[0], ())) for row in rows]
        # RETURNING does not guarantee an order.
        return in_turn(starmap(Claim, rows))

    async def _given(
        self, pipe: Pipe, rows: Sequence[Any], steps: Collection[int]
    ) -> Mapping[int, Sequence[Need]]:
        """Return the results of steps' prerequisites; read those not cached."""
        self._output_cache.serve(pipe.driver)
        given = {
            row[0]: [need]
            for row in rows
            if row[NEEDS] == 1 and (need := self._output_cache.take(row[1]))
        }
        if unknown := [seq for seq in steps if seq not in given]:
            read = await pipe.rows(self._queries.list_needs, unknown)
            given |= flows.as_needs(read)
        return given

    async def _claim_gated(
        self,
        pipe: Pipe,
        worker: str,
        token: str,
        wanted: tuple[str, int],
        now: Instant,
    ) -> Sequence[Claim]:
        """Claim what the queue's limits allow, and count it."""
        queue, most = wanted
        gate = Gate(*(await pipe.rows(self._queries.lock_gate, queue))[0])
        [(running, at)] = await pipe.rows(self._queries.count_running, queue)
        admission = admit(gate, wanted=most, running=running, now=at)
        taken: Sequence[Claim] = ()
        if admission.allowed:
            allowed = (queue, admission.allowed)
            taken = await self._take(pipe, worker, token, allowed, now, is_locked=True)
        if gate.rate is not None:
            waiting = bool(await pipe.rows(self._queries.has_queued, queue, now))
            after = count(gate, admission, taken=len(taken), waiting=waiting)
            if after != gate:
                await pipe.driver.execute(self._queries.mark_gate, queue, *after[4:])
        return taken

    def way(self, settlement: Settlement) -> Many | None:
        """Return the method for a settlement, batched; `None` if it has a body."""
        consequences = settlement.consequences
        if settlement.body is not None:
            return None
        if settlement.usage:
            return self.settle_linked
        if consequences is None:
            return self.settle
        is_done = settlement.change.to is JobState.SUCCEEDED
        if (
            not is_done
            or consequences.flow is None
            or consequences.calls_back
            or consequences.holds
        ):
            return self.settle_linked
        return self.settle_steps

    async def settle(
        self, pipe: Pipe, batches: Sequence[Sequence[Settlement]]
    ) -> Sequence[Sequence[Change | None]]:
        """Settle jobs without consequences, for all workers."""
        asks = list(chain.from_iterable(batches))
        answers: list[Change | None] = [None] * len(asks)
        for turn in turns(asks):
            plain = [asks[i] for i in turn.values()]
            settled = await self._finish(pipe, plain) | await self._put(pipe, plain)
            for seq in settled:
                answers[turn[seq]] = asks[turn[seq]].change
        return as_given(batches, answers)

    async def settle_linked(
        self, pipe: Pipe, batches: Sequence[Sequence[Settlement]]
    ) -> Sequence[Sequence[Change | None]]:
        """Settle jobs with consequences, all in one transaction."""
        asks = list(chain.from_iterable(batches))

        def body(tx: Transaction) -> list[Change | None]:
            answers: list[Change | None] = [None] * len(asks)
            tx.lock_ends(asks)
            for turn in turns(asks):
                wanted = [asks[i] for i in turn.values()]
                settled = tx.settle(wanted)
                book_settled(tx, wanted, settled)
                settle_consequences(tx, ends(wanted, settled))
                for seq in settled:
                    answers[turn[seq]] = asks[turn[seq]].change
            return answers

        return as_given(batches, await self.transact(pipe, body))

    async def settle_steps(
        self, pipe: Pipe, batches: Sequence[Sequence[Settlement]]
    ) -> Sequence[Sequence[Change | None]]:
        """Settle succeeded steps whose only consequence is their flow."""
        if not pipe.has_function:
            return await self.settle_linked(pipe, batches)
        asks = list(chain.from_iterable(batches))
        answers: list[Change | None] = [None] * len(asks)
        for turn in turns(asks):
            done = _by_seq(asks[i] for i in turn.values())
            settled, heirs = await self.transact(pipe, partial(_advance, done))
            for seq in settled:
                answers[turn[seq]] = asks[turn[seq]].change
            self._output_cache.keep(
                (heir, need_of(asks[turn[source]])) for heir, source in heirs
            )
        return as_given(batches, answers)

    async def _finish(self, pipe: Pipe, settlements: Sequence[Settlement]) -> set[int]:
        done = _by_seq(s for s in settlements if s.change.to is JobState.SUCCEEDED)
        if not done:
            return set()
        rows = await pipe.rows(self._queries.finish_jobs, *finish_columns(done))
        return {row[0] for row in rows}

    async def _put(self, pipe: Pipe, settlements: Sequence[Settlement]) -> set[int]:
        other = _by_seq(s for s in settlements if s.change.to is not JobState.SUCCEEDED)
        if not other:
            return set()
        rows = await pipe.rows(self._queries.settle_jobs, *settle_columns(other))
        return {row[0] for row in rows}

    async def move(
        self, pipe: Pipe, batches: Sequence[Sequence[Move]]
    ) -> Sequence[Sequence[bool]]:
        """Move jobs that are not running; of two moves of one job the first wins."""
        asks = list(chain.from_iterable(batches))
        answers = [False] * len(asks)
        for turn in turns(asks):
            moves = _by_seq(asks[i] for i in turn.values())
            rows = await pipe.rows(self._queries.move_jobs, *_move_columns(moves))
            for (seq,) in rows:
                answers[turn[seq]] = True
            await self.shares.forgo(pipe, moves, {seq for (seq,) in rows})
        return as_given(batches, answers)

    async def move_linked(
        self, pipe: Pipe, batches: Sequence[Sequence[Move]]
    ) -> Sequence[Sequence[bool]]:
        """Move jobs with consequences, all in one transaction."""
        asks = list(chain.from_iterable(batches))

        def body(tx: Transaction) -> list[bool]:
            answers = [False] * len(asks)
            tx.lock_ends(asks)
            for turn in turns(asks):
                wanted = [asks[i] for i in turn.values()]
                moved = tx.move(wanted)
                forgo(tx, ended_waiting(wanted, moved))
                settle_consequences(tx, ends(wanted, moved))
                for seq in moved:
                    answers[turn[seq]] = True
            return answers

        return as_given(batches, await self.transact(pipe, body))

    async def promote(
        self, pipe: Pipe, asks: Sequence[tuple[Instant, int]]
    ) -> Sequence[int]:
        """Queue the jobs that are due."""
        return [
            len(await pipe.rows(self._queries.promote_jobs, now, limit))
            for now, limit in asks
        ]

    async def report(
        self, pipe: Pipe, batches: Sequence[Sequence[Note]]
    ) -> Sequence[None]:
        """Store progress and text of jobs that are still held."""
        asks = list(chain.from_iterable(batches))
        rounds = [_by_seq(asks[i] for i in turn.values()) for turn in turns(asks)]
        if len(rounds) > 1:
            await persist(lambda: self._report_at_once(pipe, rounds))
        else:
            await self._report(pipe, rounds)
        return [None] * len(batches)

    async def _report_at_once(
        self, pipe: Pipe, rounds: Sequence[Sequence[Note]]
    ) -> None:
        async with pipe.driver.transaction():
            # The first round names every job, but locks only those that it changes.
            seqs = [note.seq for note in rounds[0]]
            await pipe.rows(self._queries.lock_jobs, seqs)
            await self._report(pipe, rounds)

    async def _report(self, pipe: Pipe, rounds: Sequence[Sequence[Note]]) -> None:
        for notes in rounds:
            arrays = [list(column) for column in zip(*notes, strict=True)]
            await pipe.rows(self._queries.report_notes, *arrays)

    async def save(
        self, pipe: Pipe, batches: Sequence[Sequence[StepResult]]
    ) -> Sequence[Sequence[bool]]:
        """Store the results of steps of jobs that are still held."""
        results = [result for batch in batches for result in batch]
        rows = await pipe.rows(self._queries.save_steps, *_columns(results))
        return [steps.kept(batch, rows) for batch in batches]

    async def pace(
        self, pipe: Pipe, acts: Sequence[lanes.Act]
    ) -> Sequence[lanes.Answer]:
        """Take and return permits for all callers, in their order."""

        def body(connection: sa.Connection) -> Sequence[lanes.Answer]:
            def clock() -> Instant:
                read = connection.exec_driver_sql(self._queries.read_clock)
                return int(read.scalar_one())

            return lanes.perform(connection, clock, acts)

        return await pipe.transact(body)

    async def execute(
        self, pipe: Pipe, asks: Sequence[tuple[str, tuple[Any, ...]]]
    ) -> Sequence[list[Any]]:
        """Run statements; return the rows of each."""
        return [
            await pipe.rows(statement, *parameters) for statement, parameters in asks
        ]


class Transaction(SharedTx):
    """A `Tx` over a connection in a transaction, as passed to bodies."""

    def __init__(
        self,
        connection: sa.Connection,
        queries: Queries,
        faults: Faults,
        rulebook: ledger.Rulebook,
    ) -> None:
        self.connection = connection
        self.queries = queries
        self.rulebook = rulebook
        self.settling: Collection[int] = ()
        self.owed: Counter[Share] = Counter()
        """The charges of shares after the commit: they are not locked before."""
        self._finishes: dict[Share, int] = {}
        self._now: Instant | None = None
        self._faults = faults
        self.deferred: Deferred | None = Deferred()
        connection.info[INFO] = self.deferred
        self._batches: set[int] = set()
        """The batches that this transaction has locked."""
        self.missing: set[int] = set()
        """Batches that it would have to wait for: the next try locks them first."""
        self._flows: set[int] = set()
        """The flows that this transaction has locked."""
        self._jobs: set[int] = set()
        """The jobs that it has locked by their keys alone."""

    def run(self, body: Callable[["Transaction"], T]) -> T:
        """Run a body, and what it deferred to the end of the transaction."""
        answer = body(self)
        self.finish()
        return answer

    def finish(self) -> None:
        """Take the last locks, each kind in a fixed order: caps, then accounts."""
        assert self.deferred is not None  # noqa: S101 - tells the type checker
        self._check_caps(self.deferred.take(_Capped))
        ledger.finish(self)

    def lock_groups(
        self, *, batches: Collection[int] = (), flows: Collection[int] = ()
    ) -> None:
        """Lock batches, then flows, by their keys, before any job of theirs."""
        if batches:
            self.rows(self.queries.lock_batches, sorted(batches))
            self._batches.update(batches)
        if missing := sorted({*flows} - self._flows):
            self.rows(self.queries.lock_flows, missing)
            self._flows.update(missing)

    def lock_batch(self, batch: int) -> None:
        """
        Lock a batch to add members, without waiting for it.

        At this point the body holds its job, or names, which come after batches in the
        order of locks: if it waited, two bodies could deadlock.
        """
        if batch in self._batches:
            return
        try:
            self.rows(self.queries.lock_batch_at_once, batch)
        except sa.exc.DBAPIError as error:
            if isinstance(said_by_driver(error), asyncpg.LockNotAvailableError):
                self.missing.add(batch)
            raise
        self._batches.add(batch)

    def lock_jobs(self, seqs: Collection[int]) -> None:
        """Lock jobs by their keys, whatever their states."""
        if missing := sorted({*seqs} - self._jobs):
            self.rows(self.queries.lock_jobs, missing)
            self._jobs.update(missing)

    def lock_ends(self, asks: Sequence[Settlement] | Sequence[Move]) -> None:
        """Lock what settlements or moves of jobs need: flows, then the jobs."""
        self.lock_groups(flows={*_flows_of(asks)})
        if _needs_several_statements(asks):
            self.lock_jobs({ask.seq for ask in asks})

    def lock_booked(self, seqs: Sequence[int]) -> None:
        """Lock the flows of jobs against changes, before the jobs are locked."""
        self.rows(self.queries.lock_flows_shared, [*seqs])

    def limit(self, seconds: float) -> None:
        """Make the server end the transaction if this process is blocked."""
        span = f"{max(1, round(seconds * 1000))}ms"
        self.rows(self.queries.limit_transaction, span)

    def require(self, claim: Claim) -> None:
        """Lock a claim's job; `ClaimLost` unless it still runs under the token."""
        if not self.rows(self.queries.check_claim, claim.seq, claim.token):
            raise ClaimLost(claim.id)
        self._jobs.add(claim.seq)
        self.hit("transact.claimed")

    def lock_hold(self, hold_id: str) -> None:
        """Make others that reserve with this id wait for the end of the transaction."""
        self.rows(self.queries.lock_name, f"hold\n{hold_id}")

    def hit(self, moment: str) -> None:
        """Pass a failpoint."""
        self._faults.hit(moment)

    def rows(self, statement: str, *parameters: Any) -> Sequence[Any]:
        """Run a statement and return its rows."""
        result = self.connection.exec_driver_sql(statement, parameters)
        return result.fetchall() if result.returns_rows else ()

    def array(self, keys: Collection[int]) -> list[int]:
        """Convert keys for the statements."""
        return [*keys]

    def columns(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Convert rows for the statements."""
        return _columns(rows)

    def now(self) -> Instant:
        """Return the server's time, the same throughout the transaction."""
        if self._now is None:
            self._now = int(self.rows(self.queries.read_clock)[0][0])
        return self._now

    def release(
        self, done: Collection[int], failed: Collection[int], at: Instant
    ) -> Sequence[int]:
        """Count down the dependents of steps, and add events; return their flows."""
        rows = self.rows(self.queries.release_jobs, [*done], [*failed], at)
        return [row[0] for row in rows]

    def conclude(
        self, ended: Mapping[int, int], troubled: Collection[int], at: Instant
    ) -> Sequence[Any]:
        """Count down the active steps of flows; return the flows that ended."""
        counts = [*ended], [*ended.values()], [flow in troubled for flow in ended]
        over = self.rows(self.queries.count_down_flows, *counts, at)
        ended_flows = [row[2:] for row in over if not row[1]]
        if doubtful := [row[0] for row in over if row[1]]:
            ended_flows += self.rows(self.queries.conclude_flows, doubtful, at)
            self.rows(self.queries.insert_flow_ends, doubtful)
        return ended_flows

    def draw(self, table: str, count: int) -> Sequence[int]:
        """Return the next keys of a table."""
        rows = self.rows(self.queries.draw_keys, f"{table}_seq_seq", count)
        return [key for (key,) in rows]

    def tell(self, events: Sequence[Telling]) -> None:
        """Insert events of jobs whose counters were incremented."""
        if events:
            self.rows(self.queries.insert_events, *_columns(events))

    def connect(self, edges: Sequence[tuple[int, int, bool]]) -> None:
        """Store edges: prerequisite, dependent, and whether it continues."""
        if edges:
            self.rows(self.queries.insert_edges, *_columns(edges))

    def book(self, calls: Sequence[Booked]) -> Sequence[Any]:
        """Store model calls; return the jobs of new ones, and whether each is late."""
        return self.rows(self.queries.insert_usages, *_columns(calls))

    def save_steps(self, results: Sequence[StepResult]) -> Sequence[Any]:
        """Store results of jobs that are still held; return their jobs and keys."""
        return self.rows(self.queries.save_steps, *_columns(results))

    def insert(self, jobs: Sequence[NewJob]) -> list[int]:
        """Store jobs without idempotency keys; return their keys."""
        if not jobs:
            return []
        charges = ledger.charge(self, jobs)
        ranks, taken = self._rank(jobs, capped=True)
        keys = dict(self.rows(self.queries.insert_jobs, *columns(jobs, ranks)))
        self._count(jobs, taken)
        if charges is not None:
            self._reserve(jobs, charges, keys)
        return [keys[job.id] for job in jobs]

    def _reserve(
        self,
        jobs: Sequence[NewJob],
        charges: Sequence[Sequence[Charge]],
        keys: Mapping[str, int],
    ) -> None:
        """Hold the charges of the jobs that were stored."""
        asked = zip(jobs, charges, strict=True)
        ledger.reserve(
            self,
            [ledger.Holder(found, keys[j.id]) for j, found in asked if j.id in keys],
        )

    def move(self, moves: Sequence[Move]) -> Collection[int]:
        """Move jobs that are not running; return the keys of those that moved."""
        ordered = _by_seq(moves)
        rows = self.rows(self.queries.move_jobs, *_move_columns(ordered))
        return {seq for (seq,) in rows}

    def submit(
        self, jobs: Sequence[NewJob], *, capped: bool = True
    ) -> Sequence[Submitted]:
        """Store jobs, or find those with the same idempotency keys."""
        if not jobs:
            return []
        charges = ledger.charge(self, jobs)
        ranks, taken = self._rank(jobs, capped=capped)
        keys = dict(self.rows(self.queries.insert_jobs, *columns(jobs, ranks)))
        ranked = sorted(zip(jobs, ranks, strict=True), key=lambda pair: _key(pair[0]))
        known = {
            job.id: self._known(job, rank, keys)
            for job, rank in ranked
            if job.id not in keys
        }
        answers = [_submitted(job) if job.id in keys else known[job.id] for job in jobs]
        pairs = zip(jobs, answers, strict=True)
        self._count([job for job, answer in pairs if not answer.replayed], taken)
        if charges is not None:
            self._reserve(jobs, charges, keys)
        return answers

    def _rank(self, jobs: Sequence[NewJob], *, capped: bool) -> tuple[list[int], Taken]:
        """Rank new jobs; capped shares are counted at the end of the transaction."""
        ranks, taken = sharing.rank(self, jobs)
        for share, place in taken.places.items():
            self._finishes[share] = place.finish
        if not capped:
            taken.caps.clear()
        return ranks, taken

    def _count(self, stored: Sequence[NewJob], taken: Taken) -> None:
        """Charge and count jobs that were just stored."""
        assert self.deferred is not None  # noqa: S101 - tells the type checker
        if taken.caps:
            self.deferred.add([_Capped(taken.caps, stored)])
        self.owe(costs(stored, by_share(stored)))

    def _check_caps(self, added: Sequence["_Capped"]) -> None:
        """Check the caps of queues, after all others that added jobs to them."""
        caps = {share: cap for some, _ in added for share, cap in some.items()}
        for name in sorted({sharing.capped(share) for share in caps}):
            self.rows(self.queries.lock_name, "\n".join(name))
        stored = [job for _, jobs in added for job in jobs]
        sharing.check_waiting(self, caps, stored)

    def owe(self, owed: Mapping[Share, int]) -> None:
        """Charge shares after the commit."""
        self.owed.update(owed)

    def standing(self, shares: Collection[Share]) -> Sequence[Any]:
        """Return the state of shares, including what this transaction has taken."""
        rows = self.rows(self.queries.list_shares, *_columns(shares))
        found = ((Share(*row[:4]), row[4], row[5:]) for row in rows)
        return [
            (share, front, self._finishes.get(share, finish), *policy)
            for share, front, (finish, *policy) in found
        ]

    def settle(self, settlements: Sequence[Settlement]) -> Collection[int]:
        """Settle jobs that are still held by their tokens; return their keys."""
        self.lock_ends(settlements)
        ordered = _by_seq(settlements)
        done = [s for s in ordered if s.change.to is JobState.SUCCEEDED]
        other = [s for s in ordered if s.change.to is not JobState.SUCCEEDED]
        rows: list[Any] = []
        if done:
            rows += self.rows(self.queries.finish_jobs, *finish_columns(done))
        if other:
            rows += self.rows(self.queries.settle_jobs, *settle_columns(other))
        settled = {row[0] for row in rows}
        if used := used_tokens(ordered, settled):
            over = {s.seq for s in ordered if s.change.to.is_final}
            estimates = self.rows(self.queries.list_estimates, [*used])
            self.owe(corrections(estimates, used, over))
        return settled

    def _known(self, job: NewJob, rank: int, stored: dict[str, int]) -> Submitted:
        horizon = job.created_at - KEY_LIFETIME_MS
        for _ in range(TRIES):
            self.connection.exec_driver_sql(
                self.queries.free_idempotency_key, (*_key(job), horizon)
            )
            if found := self.rows(self.queries.find_by_key, *_key(job)):
                return as_known(job, *found[0])
            if inserted := self.rows(self.queries.insert_jobs, *columns([job], [rank])):
                stored.update(inserted)
                return _submitted(job)
        raise _elusive()


class _Capped(NamedTuple):
    """Stored jobs that are to be counted against the caps of their queues."""

    caps: Mapping[Share, int]
    stored: Sequence[NewJob]


def _needs_several_statements(asks: Sequence[Settlement] | Sequence[Move]) -> bool:
    """
    Return whether jobs must be locked in the order of their keys beforehand.

    One statement over a pipe locks them by key; a body's connection plans for itself.
    """
    kinds = {
        isinstance(ask, Settlement) and ask.change.to is JobState.SUCCEEDED
        for ask in asks
    }
    has_bodies = any(isinstance(ask, Settlement) and ask.body for ask in asks)
    has_repeats = len({ask.seq for ask in asks}) < len(asks)
    return len(asks) > 1 and (len(kinds) > 1 or has_bodies or has_repeats)


def _flows_of(asks: Iterable[Settlement | Move]) -> Iterator[int]:
    """Yield the flows that these ends affect, or that a body may extend."""
    for ask in asks:
        has_body = isinstance(ask, Settlement) and ask.body is not None
        if ask.consequences is not None and (has_body or ask.change.to.is_final):
            flow = ask.consequences.flow
            if flow is not None:
                yield flow


def _advance(
    steps: Sequence[Settlement], tx: Transaction
) -> tuple[Sequence[int], Sequence[tuple[str, int]]]:
    """
    End steps, release their dependents, end flows, and insert events.

    Return the ended steps, and the dependents released by one of them alone.
    """
    *columns, at = finish_columns(steps)
    flows_ = sorted({*_flows_of(steps)})
    [(settled, calling, heirs, sources)] = tx.rows(ADVANCE, *columns, at, flows_)
    tx.hit("advance.released")
    deliver(tx, flows.calling(tx, calling), at)
    tx.hit("advance.told")
    return settled, [*zip(heirs, sources, strict=True)]


def as_known(job: NewJob, job_id: str, state: str, body_hash: str | None) -> Submitted:
    """Return the job of an idempotency key, if the body is the same."""
    if body_hash != job.body_hash:
        raise IdempotencyConflict(
            "this idempotency key was used with another request body"
        )
    return Submitted(job_id, JobState(state), replayed=True)


def columns(jobs: Sequence[NewJob], ranks: Sequence[int]) -> list[Any]:
    """Convert new jobs, at least one, to one array per column."""
    return [*_columns(map(job_values, jobs)), [*ranks]]


def finish_columns(settlements: Sequence[Settlement]) -> list[Any]:
    """Convert successes to one array per column, and their time."""
    return [
        [s.seq for s in settlements],
        [s.token for s in settlements],
        [s.change.output for s in settlements],
        max(s.change.at for s in settlements),
    ]


def settle_columns(settlements: Sequence[Settlement]) -> list[list[Any]]:
    """Convert settlements to one array per column."""
    rows = [
        (*settle_values(s), s.change.event, event_json(s.change), wait_json(s.change))
        for s in settlements
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def _move_columns(moves: Sequence[Move]) -> list[list[Any]]:
    rows = [(*move_values(m), m.change.event, event_json(m.change)) for m in moves]
    return [list(column) for column in zip(*rows, strict=True)]


def _key(job: NewJob) -> tuple[str, str, str]:
    return job.owner.tenant, job.owner.user, job.idempotency_key or ""


def _elusive() -> StoreUnavailable:
    """Return the error for a key whose job appeared and vanished between statements."""
    return StoreUnavailable("the idempotency key is in use; ask again")


def _submitted(job: NewJob) -> Submitted:
    return Submitted(job.id, first_state(job))


def _columns(rows: Iterable[Sequence[Any]]) -> list[Any]:
    """Convert rows to arrays for `unnest`, which fills missing values with NULL."""
    return [
        None if column[0] is None and column.count(None) == len(column) else column
        for column in zip(*rows, strict=True)
    ]


def _by_seq(numbered: Any) -> list[Any]:
    return sorted(numbered, key=lambda row: row.seq)
