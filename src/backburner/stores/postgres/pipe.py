"""
A pipe: one connection that runs calls in batches; calls that arrive meanwhile go next.

A call names a coroutine function over `(pipe's connection, arguments of all such
calls)`. Waiting calls of the same function run as one statement. If it raises, each
runs again separately, so that a caller only gets its own error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import asyncpg
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

from backburner.ports.faults import Faults
from backburner.stores.postgres.database import (
    Database,
    as_ours,
    driver,
    persist,
    renew_plans,
)

T = TypeVar("T")
Many = Callable[["Pipe", Sequence[Any]], Awaitable[Sequence[Any]]]


class Call(NamedTuple):
    """A caller's request, and where its answer goes."""

    many: Many
    argument: Any
    future: "asyncio.Future[Any]"


class Pipe:
    """A connection that is never used by two tasks at once."""

    def __init__(
        self,
        database: Database,
        faults: Faults,
        *,
        is_durable: bool = True,
        function: str | None = None,
    ) -> None:
        """Take, as `function`, a statement that creates a function in the session."""
        self._database = database
        self.faults = faults
        self._is_durable = is_durable
        self._function = function
        self.has_function = False
        self._calls: list[Call] = []
        self._task: asyncio.Task[None] | None = None
        self.connection: AsyncConnection
        self.driver: Any = None

    async def run(self, many: Many, argument: Any) -> Any:
        """Run the call with the next batch; return after its commit."""
        future = asyncio.get_running_loop().create_future()
        self._calls.append(Call(many, argument, future))
        if self._task is None:
            self._task = asyncio.create_task(self._flush())
        return await future

    async def close(self) -> None:
        """Finish waiting calls, then close the connection."""
        while self._task is not None:
            await asyncio.wait({self._task})
        await self._drop()

    async def rows(self, statement: str, *parameters: Any) -> list[Any]:
        """Run a statement and return its rows; retry one that commits by itself."""
        fetch = partial(self.driver.fetch, statement, *parameters)
        found: list[Any] = (
            await fetch() if self.driver.is_in_transaction() else await persist(fetch)
        )
        return found

    async def transact(self, body: Callable[[Connection], T]) -> T:
        """Run a function in a transaction; retry it if the server aborted it."""

        async def once() -> T:
            async with self.connection.begin():
                return await self.connection.run_sync(body)

        return await persist(once)

    async def _flush(self) -> None:
        try:
            while self._calls:
                calls, self._calls = self._calls, []
                groups: dict[Many, list[Call]] = {}
                for call in calls:
                    groups.setdefault(call.many, []).append(call)
                for many, group in groups.items():
                    await self._perform(many, group)
        finally:
            self._task = None

    async def _perform(self, many: Many, calls: Sequence[Call]) -> None:
        try:
            answers = await self._once(many, [call.argument for call in calls])
        except Exception as error:  # noqa: BLE001 - passed on to the callers
            ours = as_ours(error)
            if ours is not None or len(calls) == 1:
                for call in calls:
                    _answer(call, ours or error)
                return
            for call in calls:
                await self._perform(many, [call])
            return
        for call, answer in zip(calls, answers, strict=True):
            _answer(call, answer)

    async def _once(self, many: Many, arguments: Sequence[Any]) -> Sequence[Any]:
        # One failpoint for each verb, in whatever way it runs.
        name = many.__name__.partition("_")[0]
        try:
            if self.driver is None or self.driver.is_closed():
                await self._connect()
            await renew_plans(self.connection)
            self.faults.hit(f"{name}.before_commit")
            answers = await many(self, arguments)
        except BaseException as error:
            if not isinstance(error, Exception) or as_ours(error) is not None:
                await self._drop()
            raise
        self.faults.hit(f"{name}.after_commit")
        return answers

    async def _connect(self) -> None:
        await self._drop()
        self.connection = await self._database.connect()
        try:
            raw = await driver(self.connection)
            # A batch selects rows by key. A plan that was made while the tables were
            # small must not be kept once they are large.
            await raw.execute(
                "SET enable_seqscan = off; SET enable_hashjoin = off;"
                " SET enable_mergejoin = off"
            )
            if not self._is_durable:
                await raw.execute("SET synchronous_commit = off")
                # A process that freezes inside a claim would keep its worker from being
                # declared dead.
                await raw.execute("SET idle_in_transaction_session_timeout = '30s'")
            self.has_function = await self._make_function(raw)
        except BaseException:
            await self._discard()
            raise
        self.driver = raw

    async def _make_function(self, raw: Any) -> bool:
        """Create the function; if that is refused, do without it."""
        if self._function is None:
            return False
        try:
            await raw.execute(self._function)
        except asyncpg.InsufficientPrivilegeError:
            return False
        except asyncpg.PostgresError as error:
            if as_ours(error) is not None:
                raise
            return False
        return True

    async def _drop(self) -> None:
        if self.driver is not None:
            self.driver = None
            await self._discard()

    async def _discard(self) -> None:
        with suppress(Exception):
            await self.connection.invalidate()
        with suppress(Exception):
            await self.connection.close()


def _answer(call: Call, answer: Any) -> None:
    if call.future.done():
        return
    if isinstance(answer, Exception):
        call.future.set_exception(answer)
    else:
        call.future.set_result(answer)
