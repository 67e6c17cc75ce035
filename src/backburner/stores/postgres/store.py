"""The store for many machines: a `Store` for `postgresql://` URLs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from backburner.domain.budget import Rules
from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.domain.event import DELTA, Event
from backburner.domain.job import (
    Claim,
    Instant,
    Job,
    JobState,
    NewJob,
    Owner,
    Submitted,
)
from backburner.domain.key import ApiKey
from backburner.domain.queue import Queue, QueueState, Throttling
from backburner.domain.schedule import ScheduleState
from backburner.domain.transitions import Change
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults
from backburner.ports.finding import Finding
from backburner.ports.keys import AuditEntry
from backburner.ports.store import (
    EVERYTHING,
    FailureGroup,
    Firing,
    Heart,
    JobFilter,
    Move,
    Note,
    Retention,
    Settlement,
    Topic,
    Tx,
    Want,
    WorkerInfo,
)
from backburner.stores import batches as batching
from backburner.stores import flows as flowing
from backburner.stores import (
    keys,
    listing,
    migrations,
    notice,
    queueing,
    sharing,
    timetable,
)
from backburner.stores.budgeted import Budgeted
from backburner.stores.burials import Burials
from backburner.stores.endpoints import Endpoints
from backburner.stores.grouped import Grouped
from backburner.stores.lanes import Act, Lanes
from backburner.stores.ledger import Rulebook, is_charged
from backburner.stores.linking import LinkTx, ends, settle_links
from backburner.stores.postgres import examination
from backburner.stores.postgres.advancing import advance_flows
from backburner.stores.postgres.bell import NotifyBell
from backburner.stores.postgres.database import (
    Database,
    driver,
    persist,
    translated,
)
from backburner.stores.postgres.heart import PostgresHeart
from backburner.stores.postgres.horizon import Horizon
from backburner.stores.postgres.pipe import Many, Pipe
from backburner.stores.postgres.queries import Queries
from backburner.stores.postgres.side import PostgresSide
from backburner.stores.postgres.statements import Statements, Transaction
from backburner.stores.prospects import Prospects
from backburner.stores.rows import as_events
from backburner.stores.usages import Usages, book_settled

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")


class _BodyFailed(Exception):
    """A body raised something of its own: an `OSError` of its is no store's fault."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class PostgresStore(Grouped, Endpoints, Usages, Budgeted, Prospects, Lanes, Burials):
    """Jobs in a PostgreSQL database, shared by any number of processes."""

    def __init__(
        self, url: str, *, queries: Queries | None = None, faults: Faults
    ) -> None:
        self.queries = queries or Queries.load()
        self._dsn = sa.make_url(url).set(drivername="postgresql")
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

    @classmethod
    def from_url(cls, url: str, clock: Clock, faults: Faults) -> Self:
        """Take any `postgresql://` URL."""
        del clock  # the server's is the one that counts
        return cls(url, faults=faults)

    def bell(self) -> NotifyBell:
        """Return the bell of the processes that share this database."""
        return NotifyBell(self._plain_dsn())

    def side(self) -> PostgresSide:
        """Return what a move reads and writes by, whether the store is open or not."""
        return PostgresSide(self._database, self._dsn, self.queries.bury_workers)

    async def open(self) -> None:
        shown = self._dsn.render_as_string(hide_password=True)
        try:
            version = await self.version()
            if version is None:
                _, version = await self.migrate()
        except StoreUnavailable as error:
            raise ConfigurationError(
                f"BACKBURNER_STORE: {shown} cannot be used: {error}"
            ) from error
        if version != migrations.HEAD:
            raise ConfigurationError(
                f"BACKBURNER_STORE: {shown} is at schema {version}, this release needs "
                f"{migrations.HEAD}: run `backburner migrate`"
            )
        told = await self.read(notice.why_closed)
        if told is not None:
            raise ConfigurationError(f"BACKBURNER_STORE: {shown} {told}")

    async def close(self) -> None:
        self._database.is_closed = True
        for pipe in self._kept:
            await pipe.close()
        await self._database.dispose()

    async def ping(self) -> None:
        await self._run(self._keeping, "touch_store")

    async def version(self) -> str | None:
        return await self.read(migrations.current)

    async def migrate(self) -> tuple[str | None, str | None]:
        async with self._database.transaction() as connection:
            return await connection.run_sync(_migrate)

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
        self, worker: str, token: str, wants: Sequence[Want], *, now: Instant
    ) -> Sequence[Claim]:
        ask = (worker, token, wants, now)
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
                [await self._settle_with_body(ask) for ask in asks]
                if way is None
                else await self._write(self._settling, way, asks)
            )
            for index, answer in zip(indexes, answers, strict=True):
                applied[index] = answer
        return applied

    async def move(self, moves: Sequence[Move]) -> Sequence[bool]:
        if any(move.link for move in moves):
            return await self._write(self._keeping, self._statements.move_linked, moves)
        return await self._write(self._keeping, self._statements.move, moves)

    async def find(self, ids: Sequence[str]) -> Sequence[Job]:
        return await self.read(lambda c: listing.find(c, ids))

    async def link(self, body: Callable[[LinkTx], T]) -> T:
        return await self._transact(body)

    async def transact(self, body: Callable[[Tx], T]) -> T:
        return await self._transact(body)

    async def snapshot(self, body: Callable[[sa.Connection], T]) -> T:
        async with self._database.connection() as connection:
            await connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            return await connection.run_sync(body)

    async def _transact(self, body: Callable[[Transaction], T]) -> T:
        return await self._commit("transact", body)

    async def declare(self, queues: Sequence[Queue]) -> None:
        await self.transact(queueing.declare(queues))

    async def pause(self, queue: str, *, paused: bool) -> None:
        await self.transact(queueing.pause(queue, paused=paused))

    async def queues(self) -> Sequence[QueueState]:
        [(now, has_any)] = await self._run(self._keeping, "has_policies")
        if not has_any:
            return []
        return await self.read(lambda c: queueing.listing(c, now))

    async def throttlings(self) -> Sequence[Throttling]:
        return await self.transact(queueing.tell(await self._now()))

    async def plan(self, schedules: Sequence[ScheduleState]) -> None:
        await self.transact(timetable.declare(schedules))

    async def schedules(self) -> tuple[Instant, Sequence[ScheduleState]]:
        now = await self._now()
        return now, await self.read(timetable.listing)

    async def fire(self, firing: Firing) -> bool:
        return await self.link(timetable.fire(firing))

    async def pace(self, act: Act) -> Any:
        return await self._write(self._pacing, self._statements.pace, act)

    async def lane_time(self) -> Instant:
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
        )

    async def dismiss(self, worker: str) -> None:
        await self._run(self._keeping, "dismiss_worker", worker)

    def heart(self) -> Heart:
        return PostgresHeart(self._plain_dsn(), self.queries.beat_worker)

    async def orphans(self, *, lease: timedelta, limit: int) -> Sequence[Job]:
        span = lease // timedelta(milliseconds=1)
        await self._run(self._keeping, "bury_workers", span)
        return await self.read(lambda c: listing.orphans(c, limit))

    async def held(self, worker: str) -> Sequence[tuple[int, str]]:
        rows = await self._rows(self.queries.list_held, worker)
        return [(seq, token) for seq, token in rows]

    async def workers(self) -> Sequence[WorkerInfo]:
        return await self.read(listing.workers)

    async def report(self, notes: Sequence[Note]) -> None:
        has_text = any(note.type == DELTA for note in notes)
        pipe = self._settling if has_text else self._claiming
        await self._write(pipe, self._statements.report, notes)

    async def history(self, job_id: str, *, after: int, limit: int) -> Sequence[Event]:
        rows = await self._rows(self.queries.list_history, job_id, after, limit)
        return as_events(rows)

    async def changes(self, job_id: str, *, limit: int) -> Sequence[Event]:
        return as_events(await self._rows(self.queries.list_changes, job_id, limit))

    async def news(
        self, cursors: Sequence[tuple[int, int]], *, limit: int
    ) -> Sequence[Event]:
        jobs, numbers = [job for job, _ in cursors], [n for _, n in cursors]
        rows = await self._rows(self.queries.list_news, jobs, numbers, limit)
        return as_events(rows)

    async def stream(
        self, owner: Owner, *, after: int, limit: int, topic: Topic = EVERYTHING
    ) -> Sequence[Event]:
        safe = await self.latest()
        if not topic.is_all:
            query = listing.topic(owner, topic, after, safe, limit)
            return as_events(await self.read(lambda c: c.execute(query).all()))
        whose = (owner.tenant, owner.user)
        rows = await self._rows(
            self.queries.list_stream, after, safe, *whose, limit, topic.queues
        )
        return as_events(rows)

    async def latest(self) -> int:
        newest = await self._look()
        if self._horizon.is_news(newest):
            [(drawn,)] = await self._rows(self.queries.draw_transaction)
            self._horizon.note(newest, drawn)
            await self._look()
        return self._horizon.safe

    async def _look(self) -> int:
        [(newest, oldest_running)] = await self._rows(self.queries.event_horizon)
        self._horizon.pass_over(oldest_running)
        return int(newest)

    async def jobs(
        self, where: JobFilter, *, before: int | None, limit: int
    ) -> Sequence[Job]:
        return await self.read(lambda c: listing.jobs(c, where, before, limit))

    async def failures(self, owner: Owner, *, limit: int) -> Sequence[FailureGroup]:
        return await self.read(lambda c: listing.failures(c, owner, limit))

    async def depths(self) -> Sequence[tuple[str, JobState, int, Instant | None]]:
        return await self.read(listing.depths)

    async def waiting(self, cap: int) -> Mapping[str, int]:
        return await self.read(lambda c: listing.waiting(c, cap))

    async def dead_letters(self) -> int:
        return await self.read(listing.dead_letters)

    async def promote(self, *, now: Instant, limit: int) -> int:
        return await self._write(self._claiming, self._statements.promote, (now, limit))

    async def next_due(self) -> Instant | None:
        [(due,)] = await self._run(self._claiming, "next_due")
        return None if due is None else int(due)

    async def overdue(self, *, now: Instant, limit: int) -> Sequence[Job]:
        [(has_any,)] = await self._run(self._keeping, "has_overdue", now)
        if not has_any:
            return []
        return await self.read(lambda c: listing.overdue(c, now, limit))

    async def prune(
        self, *, keep: Retention, now: Instant, limit: int
    ) -> Sequence[str]:
        await self.link(batching.prune(keep, now, limit))
        steps = await self.link(flowing.prune(keep, now, limit))
        plain = await self._write(
            self._keeping, self._statements.prune, (keep, now, limit)
        )
        await self.transact(sharing.prune)
        return [*steps, *plain]

    async def add_key(self, key: ApiKey, entry: AuditEntry) -> None:
        await self.transact(lambda tx: keys.add(tx.connection, key, entry))

    async def find_key(self, key_id: str) -> ApiKey | None:
        return await self.read(lambda c: keys.find(c, key_id))

    async def list_keys(self, tenant: str | None = None) -> Sequence[ApiKey]:
        return await self.read(lambda c: keys.listed(c, tenant))

    async def revoke_key(self, key_id: str, entry: AuditEntry) -> bool:
        return await self.transact(lambda tx: keys.revoke(tx.connection, key_id, entry))

    async def touch_key(
        self, key_id: str, *, now: Instant, unless_since: Instant
    ) -> None:
        await self.transact(
            lambda tx: keys.touch(tx.connection, key_id, now, unless_since)
        )

    async def record(self, entries: Sequence[AuditEntry]) -> None:
        await self.transact(lambda tx: keys.record(tx.connection, entries))

    async def audited(
        self, tenant: str, *, before: int | None, limit: int
    ) -> Sequence[AuditEntry]:
        return await self.read(lambda c: keys.audited(c, tenant, before, limit))

    async def _settle_with_body(self, settlement: Settlement) -> Change | None:
        """Settle in a transaction that the body shares; if it raises, otherwise."""

        def run(tx: Transaction) -> bool:
            is_ours = bool(tx.settle([settlement]))
            if is_ours and settlement.body is not None:
                book_settled(tx, [settlement], {settlement.seq})
                tx.settling = settlement.seq
                try:
                    settlement.body(tx)
                except sa.exc.DBAPIError:
                    raise
                except Exception as error:
                    raise _BodyFailed(error) from error
                settle_links(tx, ends([settlement], {settlement.seq}))
            return is_ours

        try:
            is_ours = await self._commit("settle", run)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - it is the body's, and goes there
            cause = error.cause if isinstance(error, _BodyFailed) else error
            if settlement.otherwise is None:
                raise cause from cause.__cause__
            change = settlement.otherwise(cause)
            instead = settlement._replace(change=change, body=None, otherwise=None)
            return (await self.settle([instead]))[0]
        return settlement.change if is_ours else None

    async def _commit(self, verb: str, body: Callable[[Transaction], T]) -> T:
        """Run a body in a transaction of its own, past the failpoints of its verb."""
        begun: list[Transaction] = []

        def run(connection: sa.Connection) -> T:
            begun[:] = [
                Transaction(connection, self.queries, self._faults, self.rulebook)
            ]
            return body(begun[0])

        async def once() -> T:
            async with self._database.transaction() as connection:
                answer = await connection.run_sync(run)
                self._faults.hit(f"{verb}.before_commit")
            return answer

        answer = await persist(once)
        self._faults.hit(f"{verb}.after_commit")
        if begun[0].owed:
            # If it gets lost, what it is for stands nevertheless.
            with suppress(StoreUnavailable):
                await self._write(self._keeping, self._shares.pay_all, begun[0].owed)
        return answer

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

    def _plain_dsn(self) -> str:
        return self._dsn.render_as_string(hide_password=False)


def _milliseconds() -> float:
    return asyncio.get_running_loop().time() * 1000


def _migrate(connection: sa.Connection) -> tuple[str | None, str | None]:
    # One at a time: processes that start together must not race.
    connection.execute(sa.text("SELECT pg_advisory_xact_lock(7203510)"))
    before = migrations.current(connection)
    migrations.upgrade(connection)
    return before, migrations.current(connection)
