"""A wait for messages that may be given up without losing what it was about to get."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from backburner.domain.errors import BrokerUnavailable
from backburner.ports.broker import BrokerMessage

Read = Callable[[str, int], Awaitable[Sequence[BrokerMessage]]]
"""Ask the broker once; it may answer with nothing after a while."""
GiveBack = Callable[[str, Sequence[BrokerMessage]], Awaitable[None]]


class Reading:
    """
    Reads one queue, one question at a time.

    A question that is under way cannot be taken back: the broker may have handed
    something out already. Whoever gives up leaves it to the next who asks; if nobody
    does, what comes of it is given back.
    """

    def __init__(self, queue: str, read: Read, give_back: GiveBack) -> None:
        self._queue = queue
        self._read = read
        self._give_back = give_back
        self._question: asyncio.Task[Sequence[BrokerMessage]] | None = None
        self._is_awaited = False
        self._returns: set[asyncio.Task[None]] = set()

    async def receive(self, limit: int) -> Sequence[BrokerMessage]:
        """Wait for messages; return at most `limit`."""
        while True:
            question = self._question or self._ask(limit)
            self._is_awaited = True
            try:
                await asyncio.wait({question})
            except asyncio.CancelledError:
                self._is_awaited = False
                if question.done():
                    self._leave(question)
                raise
            self._question = None
            if question.cancelled():
                raise BrokerUnavailable("the broker was closed")
            if found := question.result():
                self._return(found[limit:])
                return found[:limit]

    async def finish(self, seconds: float) -> None:
        """Let the last question end and give back what it got; then ask no more."""
        if question := self._question:
            await asyncio.wait({question}, timeout=seconds)
            question.cancel()
            await asyncio.wait({question})
        if self._returns:
            await asyncio.wait(self._returns)

    def _ask(self, limit: int) -> asyncio.Task[Sequence[BrokerMessage]]:
        coroutine = self._one(limit)
        self._question = asyncio.create_task(coroutine, name=f"read {self._queue}")
        self._question.add_done_callback(self._ended)
        return self._question

    async def _one(self, limit: int) -> Sequence[BrokerMessage]:
        return await self._read(self._queue, limit)

    def _ended(self, question: "asyncio.Task[Sequence[BrokerMessage]]") -> None:
        if not self._is_awaited:
            self._leave(question)

    def _leave(self, question: "asyncio.Task[Sequence[BrokerMessage]]") -> None:
        if self._question is question:
            self._question = None
            if not question.cancelled() and question.exception() is None:
                self._return(question.result())

    def _return(self, messages: Sequence[BrokerMessage]) -> None:
        if messages:
            task = asyncio.create_task(self._give(messages))
            self._returns.add(task)
            task.add_done_callback(self._returns.discard)

    async def _give(self, messages: Sequence[BrokerMessage]) -> None:
        with suppress(BrokerUnavailable):  # they come again by themselves
            await self._give_back(self._queue, messages)
