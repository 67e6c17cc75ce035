"""A transaction of the SQLite store, as bodies and statements use it."""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import sqlalchemy as sa

from backburner.domain.errors import ClaimLost, IdempotencyConflict
from backburner.domain.jobs.job import (
    Claim,
    Instant,
    JobState,
    NewJob,
    Submitted,
)
from backburner.domain.jobs.step import StepResult
from backburner.domain.queues.fairness import Share
from backburner.ports.faults import Faults
from backburner.ports.store.jobs import Move
from backburner.stores.shared import ledger, sharing
from backburner.stores.shared.consequences import Telling
from backburner.stores.shared.deferral import Deferred
from backburner.stores.shared.grouped import SharedTx
from backburner.stores.shared.row_values import job_values, move_values
from backburner.stores.shared.settling import (
    KEY_LIFETIME_MS,
    as_json,
    event_json,
)
from backburner.stores.shared.sharing import Taken
from backburner.stores.shared.totals import count_ends
from backburner.stores.shared.usages import Booked
from backburner.stores.sqlite.database import driver
from backburner.stores.sqlite.handing import NextClaim, hand_on
from backburner.stores.sqlite.queries import Queries


class savepoint(AbstractContextManager[None]):  # noqa: N801 - reads as the statement
    """Keep all writes of the block, or none if it raises."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def __enter__(self) -> None:
        self._raw.execute("SAVEPOINT caller")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._raw.in_transaction:
            if kind is None:
                raise RuntimeError("a transaction body must not commit or roll back")
            return
        if kind is not None:
            self._raw.execute("ROLLBACK TO caller")
        self._raw.execute("RELEASE caller")


class Transaction(SharedTx):
    """A `Tx` over the one writing connection."""

    def __init__(
        self,
        connection: sa.Connection,
        queries: Queries,
        faults: Faults,
        rulebook: ledger.Rulebook,
        now: Callable[[], Instant],
    ) -> None:
        self.connection = connection
        self.driver = driver(connection)
        self.queries = queries
        self.rulebook = rulebook
        self.now = now
        self.settling: Collection[int] = ()
        self.names: Sequence[str] = ()
        self.then: tuple[Callable[..., Any], Sequence[Any]] | None = None
        """The call that runs next in this transaction, with its callers' arguments."""
        self.next_claim: NextClaim | None = None
        """The claim that may take released steps directly."""
        self.deferred: Deferred | None = None
        """Nothing is deferred: no other transaction is active."""
        self._faults = faults

    @contextmanager
    def settling_of(self, seq: int) -> Iterator[None]:
        """Run the block as the body of a job's settlement."""
        self.settling = {seq}
        try:
            yield
        finally:
            self.settling = ()

    def pass_all(self, moment: str) -> None:
        """Pass the failpoints of everything that ran in this transaction."""
        for name in self.names:
            self._faults.hit(f"{name}.{moment}")

    def hit(self, moment: str) -> None:
        """Pass a failpoint."""
        self._faults.hit(moment)

    def rows(self, statement: str, *parameters: Any) -> list[Any]:
        """Run a statement and return its rows."""
        return self.driver.execute(statement, parameters).fetchall()

    def array(self, keys: Collection[int]) -> str:
        """Convert keys for the statements."""
        return as_json([*keys])

    def columns(self, rows: Sequence[Sequence[Any]]) -> tuple[str]:
        """Convert rows for the statements."""
        return (as_json(rows),)

    def release(
        self, done: Collection[int], failed: Collection[int], at: Instant
    ) -> Sequence[int]:
        """Count down the dependents of steps, and add events; return their flows."""
        handed: Sequence[int] = ()
        if self.next_claim is not None and not failed:
            waiting = dict(self.rows(self.queries.list_dependents, self.array(done)))
            handed = hand_on(self, self.next_claim, waiting, at)
            if len(handed) == len(waiting):
                return handed
        asked = self.array(done), self.array(failed), at
        rows = self.rows(self.queries.release_jobs, *asked)
        released = [row for row in rows if row[1] != JobState.BLOCKED]
        self.tell_states(sorted(row[0] for row in released), at)
        return [*handed, *(row[2] for row in released)]

    def gates(self, worker: str) -> Collection[str] | None:
        """Return the queues with limits; `None` if the worker is not enlisted."""
        found = self.rows(self.queries.list_gates, worker)
        if not found:
            return None
        return found[0][0].split("\n") if found[0][0] else ()

    def conclude(
        self, ended: Mapping[int, int], troubled: Collection[int], at: Instant
    ) -> Sequence[Any]:
        """Count down the active steps of flows; return the flows that ended."""
        counts = as_json([(flow, n, flow in troubled) for flow, n in ended.items()])
        rows = self.rows(self.queries.conclude_flows, counts, at)
        over = [row for row in rows if row[1] is not None]
        if over:
            self.rows(self.queries.insert_flow_ends, self.array([r[0] for r in over]))
        return [row[2:] for row in over]

    def draw(self, table: str, count: int) -> Sequence[int]:
        """Return the next keys of a table."""
        last = self.rows(self.queries.last_key, table)[0][0]
        return range(last + 1, last + 1 + count)

    def tell(self, events: Sequence[Telling]) -> None:
        """Insert events of jobs whose counters were incremented."""
        if events:
            self.driver.execute(self.queries.insert_events, (as_json(events),))

    def tell_states(self, seqs: Sequence[int], at: Instant) -> None:
        """Insert the events of jobs that reached their current state."""
        if seqs:
            self.driver.execute(self.queries.insert_state_events, (as_json(seqs), at))

    def connect(self, edges: Sequence[tuple[int, int, bool]]) -> None:
        """Store edges: prerequisite, dependent, and whether it continues."""
        if edges:
            self.driver.execute(self.queries.insert_edges, (as_json(edges),))

    def book(self, calls: Sequence[Booked]) -> Sequence[Any]:
        """Store model calls; return the jobs of new ones, and whether each is late."""
        rows = as_json([tuple(call) for call in calls])
        return self.rows(self.queries.insert_usages, rows)

    def save_steps(self, results: Sequence[StepResult]) -> Sequence[Any]:
        """Store results of jobs that are still held; return their jobs and keys."""
        rows = as_json([tuple(result) for result in results])
        return self.rows(self.queries.save_steps, rows)

    def insert(self, jobs: Sequence[NewJob]) -> list[int]:
        """Store jobs without idempotency keys; return their keys."""
        base = self.rows(self.queries.last_seq)[0][0] + 1
        self.submit(jobs)
        return [base + index for index in range(len(jobs))]

    def require(self, claim: Claim) -> None:
        """Raise `ClaimLost` unless the job still runs under the claim's token."""
        if not self.rows(self.queries.check_claim, claim.seq, claim.token):
            raise ClaimLost(claim.id)
        self.hit("transact.claimed")

    def lock_hold(self, hold_id: str) -> None:
        """Do nothing: no other transaction is active."""

    def lock_groups(
        self, *, batches: Collection[int] = (), flows: Collection[int] = ()
    ) -> None:
        """Do nothing: no other transaction is active."""

    def lock_batch(self, batch: int) -> None:
        """Do nothing: no other transaction is active."""

    def lock_booked(self, seqs: Sequence[int]) -> None:
        """Do nothing: no other transaction is active."""

    def lock_jobs(self, seqs: Collection[int]) -> None:
        """Do nothing: no other transaction is active."""

    def move(self, moves: Sequence[Move]) -> Collection[int]:
        """Move jobs that are not running; return the keys of those that moved."""
        rows = as_json([*map(move_values, moves)])
        came = self.rows(self.queries.move_jobs, rows)
        moved = {row[0] for row in came}
        count_ends(self, [row[1:] for row in came])
        self.tell(
            [
                (m.seq, m.change.event, m.change.at, event_json(m.change))
                for m in moves
                if m.seq in moved
            ]
        )
        return moved

    def submit(
        self, jobs: Sequence[NewJob], *, capped: bool = True
    ) -> Sequence[Submitted]:
        """Store jobs, or find those with the same idempotency keys."""
        charges = ledger.charge(self, jobs)
        base = self.rows(self.queries.last_seq)[0][0] + 1
        ranks, taken = sharing.rank(self, jobs)
        ranked = zip(jobs, ranks, strict=True)
        rows = [
            (base + i, rank, *job_values(job)) for i, (job, rank) in enumerate(ranked)
        ]
        answers = self._insert(jobs, rows)
        self.driver.execute(
            self.queries.insert_submit_events, (base, base + len(jobs) - 1)
        )
        if charges is not None:
            asked = enumerate(zip(charges, answers, strict=True))
            ledger.reserve(
                self,
                [
                    ledger.Holder(found, base + index)
                    for index, (found, answer) in asked
                    if not answer.replayed
                ],
            )
        self._save(taken)
        if taken.caps or any(answer.replayed for answer in answers):
            pairs = [*zip(jobs, answers, strict=True)]
            self.owe(sharing.refund([job for job, a in pairs if a.replayed]))
            stored = [job for job, a in pairs if not a.replayed]
            sharing.check_waiting(self, taken.caps if capped else {}, stored)
        return answers

    def owe(self, owed: Mapping[Share, int]) -> None:
        """Charge shares for more than they were given, or refund them."""
        self._save(sharing.place(self, owed))

    def _save(self, taken: Taken) -> None:
        rows = [(*key, place.finish, place.span) for key, place in taken.places.items()]
        self.driver.executemany(self.queries.save_shares, rows)

    def standing(self, shares: Collection[Share]) -> Sequence[Any]:
        """Return the state of shares, each after its name."""
        read = self.queries.read_share
        return [(share, *self.rows(read, *share)[0]) for share in shares]

    def _insert(
        self, jobs: Sequence[NewJob], rows: Sequence[tuple[Any, ...]]
    ) -> Sequence[Submitted]:
        if all(job.idempotency_key is None for job in jobs):
            self.driver.executemany(self.queries.insert_jobs, rows)
            return [
                Submitted(job.id, row[7]) for job, row in zip(jobs, rows, strict=True)
            ]
        return [self._insert_one(job, row) for job, row in zip(jobs, rows, strict=True)]

    def _insert_one(self, job: NewJob, row: tuple[Any, ...]) -> Submitted:
        if job.idempotency_key is not None:
            if self.rows(self.queries.insert_job, *row):
                return Submitted(job.id, row[7])
            known = self._known(job)
            if known is not None:
                return known
        self.driver.execute(self.queries.insert_jobs, row)
        return Submitted(job.id, row[7])

    def _known(self, job: NewJob) -> Submitted | None:
        key = (job.owner.tenant, job.owner.user, job.idempotency_key)
        horizon = job.created_at - KEY_LIFETIME_MS
        self.driver.execute(self.queries.free_idempotency_key, (*key, horizon))
        found = self.rows(self.queries.find_by_key, *key)
        if not found:
            return None
        job_id, state, body_hash = found[0]
        if body_hash != job.body_hash:
            raise IdempotencyConflict(
                "this idempotency key was used with another request body"
            )
        return Submitted(job_id, JobState(state), replayed=True)
