"""Waits for messages; a cancelled wait does not lose messages."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from backburner.domain.errors import BrokerUnavailable
from backburner.ports.broker import BrokerMessage

Read = Callable[[str, int], Awaitable[Sequence[BrokerMessage]]]
"""Read from the broker once; after a while it may return nothing."""
GiveBack = Callable[[str, Sequence[BrokerMessage]], Awaitable[None]]


class Reading:
    """
    Reads one queue, one request at a time.

    A pending request cannot be cancelled, as the broker may already have handed out
    messages. If its caller is cancelled, the next caller takes it over; if there is
    none, its messages are returned to the broker.
    """

    def __init__(self, queue: str, read: Read, give_back: GiveBack) -> None:
        self._queue = queue
        self._read = read
        self._give_back = give_back
        self._request: asyncio.Task[Sequence[BrokerMessage]] | None = None
        self._is_awaited = False
        self._returns: set[asyncio.Task[None]] = set()

    async def receive(self, limit: int) -> Sequence[BrokerMessage]:
        """Wait for messages; return at most `limit`."""
        while True:
            request = self._request or self._start(limit)
            self._is_awaited = True
            try:
                await asyncio.wait({request})
            except asyncio.CancelledError:
                self._is_awaited = False
                if request.done():
                    self._leave(request)
                raise
            self._request = None
            if request.cancelled():
                raise BrokerUnavailable("the broker was closed")
            if messages := request.result():
                self._return(messages[limit:])
                return messages[:limit]

    async def finish(self, seconds: float) -> None:
        """Wait for the pending request, return its messages, and stop reading."""
        if request := self._request:
            await asyncio.wait({request}, timeout=seconds)
            request.cancel()
            await asyncio.wait({request})
        if self._returns:
            await asyncio.wait(self._returns)

    def _start(self, limit: int) -> asyncio.Task[Sequence[BrokerMessage]]:
        coroutine = self._one(limit)
        self._request = asyncio.create_task(coroutine, name=f"read {self._queue}")
        self._request.add_done_callback(self._ended)
        return self._request

    async def _one(self, limit: int) -> Sequence[BrokerMessage]:
        return await self._read(self._queue, limit)

    def _ended(self, request: "asyncio.Task[Sequence[BrokerMessage]]") -> None:
        if not self._is_awaited:
            self._leave(request)

    def _leave(self, request: "asyncio.Task[Sequence[BrokerMessage]]") -> None:
        if self._request is request:
            self._request = None
            if not request.cancelled() and request.exception() is None:
                self._return(request.result())

    def _return(self, messages: Sequence[BrokerMessage]) -> None:
        if messages:
            task = asyncio.create_task(self._give(messages))
            self._returns.add(task)
            task.add_done_callback(self._returns.discard)

    async def _give(self, messages: Sequence[BrokerMessage]) -> None:
        with suppress(BrokerUnavailable):  # the broker delivers them again by itself
            await self._give_back(self._queue, messages)
