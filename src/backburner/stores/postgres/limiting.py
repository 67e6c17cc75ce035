"""
Ends transaction bodies that take too long.

A body runs on the event loop, so only its statements can be interrupted. A body that
only computes is refused when it returns; by then the server has ended its session, so
that its locks block nobody (`limit_transaction.sql`).
"""

import asyncio
from types import TracebackType

from backburner.domain.errors import TransactionTooLong


class Limit:
    """
    Limits the total time of one or more blocks.

    The time starts with the first block: a transaction that the server aborted because
    of a deadlock runs again within what is left.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None
        self._timeout: asyncio.Timeout
        self.error: TransactionTooLong | None = None
        """The error that ended a block."""

    async def __aenter__(self) -> None:
        if self._end is None:
            self._end = _now() + self._seconds
        self._timeout = asyncio.timeout_at(self._end)
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._end is not None  # noqa: S101 - tells the type checker
        is_over = error is None or isinstance(error, Exception)
        is_over = is_over and _now() >= self._end
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            is_over = True
        if is_over:
            self.error = TransactionTooLong(self._seconds)
            raise self.error from error


def _now() -> float:
    return asyncio.get_running_loop().time()
