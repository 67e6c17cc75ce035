"""The SQLite store: a `Store` for `sqlite:///` URLs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

import orjson
import sqlalchemy as sa

from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.domain.events.event import Event
from backburner.domain.jobs.job import (
    Claim,
    Instant,
    Job,
    NewJob,
    Submitted,
)
from backburner.domain.jobs.step import StepResult
from backburner.domain.jobs.transitions import Change
from backburner.domain.queues.queue import QueueState
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults, NoFaults
from backburner.ports.finding import Finding
from backburner.ports.history import History
from backburner.ports.store.events import Note
from backburner.ports.store.jobs import ClaimRequest, Move, Settlement
from backburner.ports.store.maintenance import Retention
from backburner.ports.store.transactions import Tx
from backburner.ports.store.workers import Heart, WorkerInfo
from backburner.stores import migrations
from backburner.stores.move import notice
from backburner.stores.shared import batches as batching
from backburner.stores.shared import flows as flowing
from backburner.stores.shared import (
    listing,
    queue_policies,
    retention,
    sharing,
)
from backburner.stores.shared.base import BaseStore
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.shared.lanes import Act
from backburner.stores.shared.ledger import Rulebook
from backburner.stores.shared.rows import as_events
from backburner.stores.sqlite import examination, statements
from backburner.stores.sqlite.database import (
    Database,
    driver,
    require_version,
    translated,
)
from backburner.stores.sqlite.heart import SqliteHeart
from backburner.stores.sqlite.limiting import limited
from backburner.stores.sqlite.notifier import SocketNotifier
from backburner.stores.sqlite.queries import Queries
from backburner.stores.sqlite.reader import Reader, ThreadReader
from backburner.stores.sqlite.side import SqliteSide
from backburner.stores.sqlite.transaction import Transaction
from backburner.stores.sqlite.writer import ThreadWriter, Writer

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")


class SqliteStore(BaseStore):
    """Jobs in one SQLite file, shared by the processes of one machine."""

    applies_in_order = True

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        queries: Queries | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.database = database
        self.queries = queries or Queries.load()
        self._clock = clock
        self._faults = faults or NoFaults()
        self.rulebook = Rulebook(clock.monotonic)
        self._writer: Writer | None = None
        self._reader: Reader | None = None

    @classmethod
    def from_url(cls, url: str, clock: Clock, faults: Faults) -> Self:
        """Create a store from `sqlite:///relative` or `sqlite:////absolute`."""
        require_version()
        name = sa.make_url(url).database
        if not name or name == ":memory:":
            raise ConfigurationError(
                f"BACKBURNER_STORE={url!r} names no file: "
                "write sqlite:///backburner.db, or four slashes for an absolute path"
            )
        # Links are resolved, so that there is one lock file for each database file.
        return cls(Database(Path(name).resolve()), clock, faults=faults)

    def notifier(self) -> SocketNotifier:
        """Return the notifier of the processes that share this file."""
        path = self.database.path
        assert path is not None  # noqa: S101 - a store from a URL has a file
        return SocketNotifier(path.with_name(path.name + "-wake"))

    def side(self) -> SqliteSide:
        """Return the access for a move, whether the store is open or not."""
        return SqliteSide(self.database, self._clock, self.queries.remove_dead_workers)

    def begin(self, connection: sa.Connection) -> Transaction:
        """Wrap a connection that is in a transaction."""
        return Transaction(
            connection, self.queries, self._faults, self.rulebook, self._clock.now
        )

    async def open(self) -> None:
        await asyncio.to_thread(self._check)
        self.attach(
            ThreadWriter(self.database, self.begin), ThreadReader(self.database)
        )

    def attach(self, writer: Writer, reader: Reader) -> None:
        """Use this writer and reader from now on."""
        self._writer, self._reader = writer, reader

    async def close(self) -> None:
        writer, reader = self._writer, self._reader
        self._writer = self._reader = None
        if writer is not None:
            await asyncio.to_thread(writer.close)
        if reader is not None:
            await asyncio.to_thread(reader.close)
        self.database.dispose()

    async def ping(self) -> None:
        await self._write(_touch, None, durable=False)

    async def version(self, history: History = migrations.ENGINE) -> str | None:
        return await asyncio.to_thread(self._version, history)

    async def migrate(
        self, history: History = migrations.ENGINE
    ) -> tuple[str | None, str | None]:
        return await asyncio.to_thread(self._migrate, history)

    def examine(self, clock: Clock) -> AsyncIterator[Finding]:
        del clock  # the store uses the same clock
        return examination.examine(self, self.database)

    async def submit(self, jobs: Sequence[NewJob]) -> Sequence[Submitted]:
        return await self._write(statements.submit, jobs)

    async def claim(
        self,
        worker: str,
        token: str,
        claim_requests: Sequence[ClaimRequest],
        *,
        now: Instant,
    ) -> Sequence[Claim]:
        ask = (worker, token, claim_requests, now)
        return await self._write(statements.claim, ask, durable=False)

    async def settle(
        self, settlements: Sequence[Settlement]
    ) -> Sequence[Change | None]:
        return await self._write(statements.settle, settlements)

    async def move(self, moves: Sequence[Move]) -> Sequence[bool]:
        return await self._write(statements.move, moves)

    async def internal_transaction(self, body: Callable[[InternalTx], T]) -> T:
        return await self._transact(body)

    async def transact(
        self,
        body: Callable[[Tx], T],
        *,
        claim: Claim | None = None,
        seconds: float | None = None,
    ) -> T:
        if claim is None and seconds is None:
            return await self._transact(body)

        def transact(tx: Transaction, _: Sequence[None]) -> Sequence[T]:
            with limited(tx.driver, seconds):
                return [body(tx)]

        def transact_claimed(tx: Transaction, _: Sequence[None]) -> Sequence[T]:
            assert claim is not None  # noqa: S101 - tells the type checker
            tx.require(claim)
            return transact(tx, _)

        if claim is None:
            return await self._write(transact, None)
        return await self._write(transact_claimed, None)

    def aside(self, work: Callable[[], T]) -> T:
        return work()  # bodies run in the writer's thread

    async def snapshot(self, body: Callable[[sa.Connection], T]) -> T:
        return await self.read(lambda connection: _at_once(connection, body))

    async def _transact(self, body: Callable[[Transaction], T]) -> T:
        def transact(tx: Transaction, _: Sequence[None]) -> Sequence[T]:
            return [body(tx)]

        return await self._write(transact, None)

    async def queues(self) -> Sequence[QueueState]:
        now = self._clock.now()
        return await self.read(lambda c: queue_policies.listing(c, now))

    async def pace(self, act: Act) -> Any:
        return await self._write(statements.pace, (self._clock, act), durable=False)

    async def read_clock(self) -> Instant:
        return self._clock.now()

    async def enlist(self, worker: WorkerInfo) -> None:
        await self._write(_enlist, (worker, self._clock.monotonic()))

    async def dismiss(self, worker: str) -> None:
        await self._write(_dismiss, worker)

    def heart(self) -> Heart:
        return SqliteHeart(self.database, self._clock, self.queries.beat_worker)

    async def orphans(self, *, lease: timedelta, limit: int) -> Sequence[Job]:
        span = lease // timedelta(milliseconds=1)
        ask = (self._clock, self._clock.monotonic(), span)
        await self._write(_remove_dead_workers, ask, durable=False)
        return await self.read(lambda c: listing.orphans(c, limit))

    async def held(self, worker: str) -> Sequence[tuple[int, str]]:
        return await self._rows(self.queries.list_held, worker)

    async def report(self, notes: Sequence[Note]) -> None:
        await self._write(statements.report, notes)

    async def save_plain_steps(self, results: Sequence[StepResult]) -> Sequence[bool]:
        return await self._write(statements.save, results)

    async def news(
        self, cursors: Sequence[tuple[int, int]], *, limit: int
    ) -> Sequence[Event]:
        asked = orjson.dumps(cursors).decode()
        return as_events(await self._rows(self.queries.list_news, asked, limit))

    async def latest(self) -> int:
        return int((await self._rows(self.queries.latest_event))[0][0])

    async def promote(self, *, now: Instant, limit: int) -> int:
        return await self._write(statements.promote, (now, limit), durable=False)

    async def next_due(self) -> Instant | None:
        due: Instant | None = (await self._rows(self.queries.next_due))[0][0]
        return due

    async def prune(
        self, *, keep: Retention, now: Instant, limit: int
    ) -> Sequence[str]:
        await self.internal_transaction(batching.prune(keep, now, limit))
        steps = await self.internal_transaction(flowing.prune(keep, now, limit))
        steps = [
            *steps,
            *await self.internal_transaction(retention.prune_flows(keep, now, limit)),
        ]
        plain = await self._write(statements.prune, (keep, now, limit))
        plain = [
            *plain,
            *await self.internal_transaction(retention.prune_jobs(keep, now, limit)),
        ]
        await self.transact(sharing.prune)
        await self.transact(queue_policies.prune(keep, now, limit))
        return [*steps, *plain]

    async def _write(
        self,
        many: Callable[[Transaction, Sequence[Q]], Sequence[A | Exception]],
        argument: Q,
        *,
        durable: bool = True,
    ) -> A:
        if self._writer is None:
            raise StoreUnavailable("the store is not open")
        answer: A = await self._writer.run(many, argument, durable=durable)
        return answer

    async def read(self, read: Callable[[sa.Connection], T]) -> T:
        if self._reader is None:
            raise StoreUnavailable("the store is not open")
        return await self._reader.run(read)

    async def _rows(self, statement: str, *parameters: Any) -> list[Any]:
        return await self.read(
            lambda c: driver(c).execute(statement, parameters).fetchall()
        )

    def _version(self, history: History = migrations.ENGINE) -> str | None:
        if self.database.path is not None and not self.database.path.exists():
            return None
        # As a reader: a writer would fail beside a long migration.
        with (
            translated(),
            self.database.connect().execution_options(reads=True) as connection,
        ):
            return migrations.current(connection, history)

    def _migrate(
        self, history: History = migrations.ENGINE
    ) -> tuple[str | None, str | None]:
        if self.database.path is not None:
            _require_folder(self.database.path)
        with (
            translated(),
            self.database.connect() as connection,
            closing(self.database.lock()) as lock,
            lock,
            connection.begin(),
        ):
            before = migrations.current(connection, history)
            migrations.upgrade(connection, history=history)
            return before, migrations.current(connection, history)

    def _check(self) -> None:
        path = self.database.path
        assert path is not None  # noqa: S101 - opened stores have a file
        try:
            version = self._version()
            if version is None:
                _, version = self._migrate()
        except (StoreUnavailable, OSError) as error:
            raise ConfigurationError(f"BACKBURNER_STORE: {error}") from error
        if version != migrations.HEAD:
            raise ConfigurationError(
                f"BACKBURNER_STORE: {path} is at schema {version}, this release needs "
                f"{migrations.HEAD}: run `backburner migrate`"
            )
        with translated(), self.database.connect_reader() as connection:
            reason = notice.why_closed(connection)
        if reason is not None:
            raise ConfigurationError(f"BACKBURNER_STORE: {path} {reason}")


def _require_folder(path: Path) -> None:
    """Refuse a file in a missing folder, which may be a mistake in the path."""
    if not path.parent.is_dir():
        raise ConfigurationError(
            f"BACKBURNER_STORE: there is no folder {path.parent} for {path.name}: "
            "create it, or correct the path"
        )


def _at_once(connection: sa.Connection, body: Callable[[sa.Connection], T]) -> T:
    """Read within one transaction, unlike the connection's default."""
    raw = driver(connection)
    raw.execute("BEGIN")
    try:
        return body(connection)
    finally:
        if raw.in_transaction:
            raw.execute("ROLLBACK")


def _touch(tx: Transaction, asks: Sequence[None]) -> Sequence[None]:
    tx.driver.execute(tx.queries.touch_store)
    return asks


def _enlist(
    tx: Transaction, asks: Sequence[tuple[WorkerInfo, Instant]]
) -> Sequence[None]:
    tx.driver.executemany(
        tx.queries.enlist_worker,
        [
            (
                *(w.id, w.host, w.pid, w.slots, "\n".join(w.queues), w.started_at),
                *(w.draining, beat_at),
            )
            for w, beat_at in asks
        ],
    )
    return [None] * len(asks)


def _dismiss(tx: Transaction, workers: Sequence[str]) -> Sequence[None]:
    tx.driver.executemany(tx.queries.dismiss_worker, [(w,) for w in workers])
    return [None] * len(workers)


def _remove_dead_workers(
    tx: Transaction, asks: Sequence[tuple[Clock, Instant, int]]
) -> Sequence[None]:
    for clock, asked_at, lease in asks:
        # Read inside the transaction: no heartbeat can be younger.
        now = clock.monotonic()
        tx.driver.execute(tx.queries.remove_dead_workers, (asked_at, lease, now))
    return [None] * len(asks)
