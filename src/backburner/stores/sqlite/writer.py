"""
Group commit: calls that arrive during a commit run together in the next transaction.

A call names a function over `(tx, arguments of all such calls)`. Waiting calls of the
same function run as one batch. If the batch raises, each call runs again separately
under its own savepoint, so that a caller only gets its own error.
"""

import asyncio
import math
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa

from backburner.domain.errors import StoreUnavailable, TransactionTooLong
from backburner.stores.sqlite.database import Database, as_ours, driver, translated
from backburner.stores.sqlite.transaction import Transaction, savepoint

LONGEST_WAIT = 10.0
"""Seconds; a process that freezes inside a commit blocks all the others."""
HELD_UP = "another process has locked the file for too long"

Many = Callable[[Transaction, Sequence[Any]], Sequence[Any]]


class Call(NamedTuple):
    """A caller's request, and where its result goes."""

    many: Many
    argument: Any
    durable: bool
    future: "asyncio.Future[Any]"


class _Interrupted(Exception):
    """A body was interrupted, which rolled back the transaction of all callers."""

    def __init__(self, many: Many, error: TransactionTooLong) -> None:
        self.many = many
        self.error = error


class Writer(Protocol):
    """Runs transactions, one at a time."""

    async def run(self, many: Many, argument: Any, *, durable: bool = True) -> Any:
        """Run the call in the next transaction; return after its commit."""
        ...

    def close(self) -> None:
        """Finish waiting calls, then close the connection."""
        ...


class ThreadWriter:
    """A thread with the process's only writing connection."""

    def __init__(
        self, database: Database, begin: Callable[[sa.Connection], Transaction]
    ) -> None:
        self._session = Session(database, begin)
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._work, name="backburner-writer", daemon=True
        )
        self._patrol = threading.Thread(
            target=self._watch_out, name="backburner-patrol", daemon=True
        )
        self._closed = False
        self._closing = threading.Event()
        self._thread.start()
        self._patrol.start()

    async def run(self, many: Many, argument: Any, *, durable: bool = True) -> Any:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._session.is_held_up():
            raise StoreUnavailable(HELD_UP)
        future = asyncio.get_running_loop().create_future()
        self._calls.put(Call(many, argument, durable, future))
        return await future

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._calls.put(None)
            self._thread.join(LONGEST_WAIT)
            self._closing.set()
            self._patrol.join()

    def _work(self) -> None:
        while True:
            calls, more = self._take()
            if calls:
                answers = self._commit(calls)  # may shorten the list
                _deliver(calls, answers)
            if not more:
                self._session.close()
                return

    def _watch_out(self) -> None:
        """Fail calls that wait too long for a lock held by another process."""
        while not self._closing.wait(LONGEST_WAIT / 4):
            if self._session.is_held_up():
                calls = [*self._session.withdraw(), *self._take_back()]
                _deliver(calls, [StoreUnavailable(HELD_UP) for _ in calls])

    def _take_back(self) -> list[Call]:
        calls: list[Call] = []
        with suppress(queue.Empty):
            while (call := self._calls.get_nowait()) is not None:
                calls.append(call)
            self._calls.put(None)
        return calls

    def _commit(self, calls: list[Call]) -> Sequence[Any]:
        try:
            return self._session.commit(calls)
        except BaseException as error:  # noqa: BLE001 - without its thread all calls hang
            kind = type(error).__name__
            lost = StoreUnavailable(f"a transaction was ended by {kind}")
            return [lost] * len(calls)

    def _take(self) -> tuple[list[Call], bool]:
        call = self._calls.get()
        calls: list[Call] = []
        while call is not None:
            calls.append(call)
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return calls, True
        return calls, False


class InlineWriter:
    """Writes on the event loop, for simulations that control the time."""

    def __init__(
        self,
        database: Database,
        begin: Callable[[sa.Connection], Transaction],
        connection: sa.Connection | None = None,
    ) -> None:
        self._session = Session(database, begin, connection)
        self._calls: list[Call] = []

    async def run(self, many: Many, argument: Any, *, durable: bool = True) -> Any:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._calls.append(Call(many, argument, durable, future))
        if len(self._calls) == 1:
            loop.call_soon(self._flush)
        return await future

    def close(self) -> None:
        self._flush()
        self._session.close()

    def _flush(self) -> None:
        calls, self._calls = self._calls, []
        if calls:
            _resolve(zip(calls, self._session.commit(calls), strict=True))


class Session:
    """A writing connection and its transactions."""

    def __init__(
        self,
        database: Database,
        begin: Callable[[sa.Connection], Transaction],
        connection: sa.Connection | None = None,
    ) -> None:
        self._lock = database.lock()
        self._owned = connection is None
        self._connection = connection or database.connect()
        # If a body continues after its transaction was rolled back, it begins another
        # one, which is rolled back as well, so that it writes nothing.
        driver(self._connection).isolation_level = "DEFERRED"
        self._begin = begin
        self._durable = True
        self._waiting: list[Call] = []
        self._waiting_since = math.inf
        """Since when it has waited for the lock."""
        self._deciding = threading.Lock()

    def commit(self, calls: list[Call]) -> Sequence[Any]:
        """
        Run calls in one transaction; return a result or an exception for each.

        Calls that were withdrawn meanwhile are removed from the list.
        """
        try:
            self._waiting, self._waiting_since = calls, time.monotonic()
            with translated(), self._lock:
                with self._deciding:
                    self._waiting_since = math.inf
                return self._transact(calls) if calls else []
        except Exception as error:  # noqa: BLE001 - every caller must get a result
            with self._deciding:
                self._waiting_since = math.inf
            return [error] * len(calls)

    def is_held_up(self) -> bool:
        """Return whether it has waited too long for the lock."""
        return time.monotonic() - self._waiting_since > LONGEST_WAIT

    def withdraw(self) -> list[Call]:
        """Withdraw calls that wait too long for the lock; they will not run."""
        with self._deciding:
            if not self.is_held_up():
                return []
            calls = self._waiting[:]
            self._waiting.clear()
            return calls

    def close(self) -> None:
        """Close the connection under the lock: closing the last one checkpoints."""
        if self._owned:
            with self._lock:
                self._connection.close()
        self._lock.close()

    def _transact(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Run calls; if one is interrupted, run the others again without it."""
        try:
            return self._transact_once(calls)
        except _Interrupted as interrupted:
            others = [call for call in calls if call.many is not interrupted.many]
            answers = iter(self._transact(others) if others else ())
            return [
                interrupted.error if call.many is interrupted.many else next(answers)
                for call in calls
            ]

    def _transact_once(self, calls: Sequence[Call]) -> Sequence[Any]:
        self._set_durable(any(call.durable for call in calls))
        with self._connection.begin():
            tx = self._begin(self._connection)
            answers = _perform(tx, calls)
            tx.pass_all("before_commit")
        tx.pass_all("after_commit")
        return answers

    def _set_durable(self, durable: bool) -> None:
        if durable != self._durable:
            level = "FULL" if durable else "NORMAL"
            driver(self._connection).execute(f"PRAGMA synchronous = {level}")
            self._durable = durable


def _perform(tx: Transaction, calls: Sequence[Call]) -> Sequence[Any]:
    answers: list[Any] = [None] * len(calls)
    groups: dict[Many, list[int]] = {}
    # Calls that need not be durable run last: a claim finds what the others queued.
    for index in sorted(range(len(calls)), key=lambda n: not calls[n].durable):
        groups.setdefault(calls[index].many, []).append(index)
    tx.names = [many.__name__ for many in groups]
    asked = [
        (many, [calls[index].argument for index in indexes])
        for many, indexes in groups.items()
    ]
    for (many, arguments), then in zip_longest(asked, asked[1:]):
        tx.then = then
        indexes = groups[many]
        for index, answer in zip(indexes, _run(tx, many, arguments), strict=True):
            answers[index] = answer
    return answers


def _run(tx: Transaction, many: Many, arguments: Sequence[Any]) -> Sequence[Any]:
    try:
        with savepoint(tx.driver):
            return many(tx, arguments)
    except Exception as error:
        tx.then = tx.next_claim = None  # discard steps that were passed on
        if _ends_transaction(tx, error):
            if isinstance(error, TransactionTooLong):
                raise _Interrupted(many, error) from error
            raise
        if len(arguments) == 1:
            return [error]
    return [_run(tx, many, [argument])[0] for argument in arguments]


def _ends_transaction(tx: Transaction, error: Exception) -> bool:
    # A body may raise anything, also an OSError: only the database's errors count.
    is_store = isinstance(error, (sqlite3.Error, sa.exc.DBAPIError))
    return not tx.driver.in_transaction or (is_store and as_ours(error) is not None)


def _deliver(calls: Sequence[Call], answers: Sequence[Any]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Call, Any]]] = {}
    for call, answer in zip(calls, answers, strict=True):
        by_loop.setdefault(call.future.get_loop(), []).append((call, answer))
    for loop, pairs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, pairs)
        except RuntimeError:  # the loop is closed: no caller waits any more
            continue


def _resolve(pairs: Iterable[tuple[Call, Any]]) -> None:
    for call, answer in pairs:
        if call.future.done():
            continue
        if isinstance(answer, Exception):
            call.future.set_exception(answer)
        else:
            call.future.set_result(answer)
