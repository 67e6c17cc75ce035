"""
Runs a transaction body up to its commit, limited in time, and retries it if necessary.

The server may abort it as the victim of a deadlock. A body may also need the lock of a
batch after it has taken locks that come later in the order of locks: then it does not
wait for that lock, but starts again and takes it first.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from backburner.domain.errors import StoreUnavailable
from backburner.stores.postgres.database import persist
from backburner.stores.postgres.limiting import Limit
from backburner.stores.postgres.statements import Transaction

T = TypeVar("T")
Lend = Callable[[], AbstractAsyncContextManager[AsyncConnection]]


class _Unlocked(Exception):
    """A body continued although it did not get the lock of a batch."""


class Committing(Generic[T]):
    """One body, from its first run to its commit."""

    def __init__(
        self,
        begin: Callable[[sa.Connection], Transaction],
        body: Callable[[Transaction], T],
        limit: Limit | None = None,
    ) -> None:
        self._begin = begin
        self._body = body
        self._limit = limit
        self._batches: set[int] = set()
        """The batches to lock before anything else."""
        self.tx: Transaction | None = None
        """The transaction of the last run."""

    async def run(self, lend: Lend, committing: Callable[[], None]) -> T:
        """Run the body in a transaction that `lend` begins and commits."""
        try:
            return await persist(lambda: self._run_locked(lend, committing))
        except StoreUnavailable as error:
            if self._limit is None or self._limit.error is None:
                raise
            # The server was faster: it ended the session of a blocked body.
            raise self._limit.error from error

    async def _run_locked(self, lend: Lend, committing: Callable[[], None]) -> T:
        while True:
            known = len(self._batches)
            try:
                return await self._run_once(lend, committing)
            except Exception:
                if self.tx is not None:
                    self._batches |= self.tx.missing
                if len(self._batches) == known:
                    raise

    async def _run_once(self, lend: Lend, committing: Callable[[], None]) -> T:
        async with lend() as connection:
            async with self._limit or nullcontext():
                answer = await connection.run_sync(self._perform)
            committing()
        return answer

    def _perform(self, connection: sa.Connection) -> T:
        self.tx = tx = self._begin(connection)
        if self._batches:
            tx.lock_groups(batches=self._batches)
        answer = tx.run(self._body)
        if tx.missing:
            raise _Unlocked
        return answer
