"""
Receives the messages of one queue, on its own channel.

The prefetch count is what `receive` asked for, and twice that if it asked for many.
Messages that are not fetched for a second are returned and the consumer is cancelled,
so a busy process keeps nothing from idle ones and no consumer timeout applies.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed

from backburner.brokers.amqp.wire import (
    ACK,
    MULTIPLE,
    NACK,
    REQUEUE,
    Wire,
    settle,
)
from backburner.domain.errors import BrokerUnavailable
from backburner.ports.broker import BrokerMessage

LOOK_SECONDS = 0.45
"""A message that is seen unfetched in two successive checks is returned."""
VAIN_LOOKS = 22
"""
The number of checks without a message after which a consumer is replaced: ten seconds.

RabbitMQ 3.10 may not report to a consumer that its queue was deleted. The consumer then
gets no messages of a new queue with that name, or withholds them from others.
"""
FEW = 16
MOST = 4_000


class Consumer:
    """Provides the messages of a queue, and acknowledges or returns them."""

    def __init__(
        self,
        wire: Wire,
        channel: AbstractChannel,
        queue: str,
        answered: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self._wire = wire
        self._channel = channel
        self._queue = queue
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        self._turning = asyncio.Lock()
        self._turns: set[asyncio.Task[None]] = set()
        self._waiting: deque[BrokerMessage] = deque()
        self._held: dict[int, None] = {}
        self._fetcher: asyncio.Future[None] | None = None
        self._tag = ""
        self._prefetch = 0
        self._asked = False
        self._seen = 0
        self._last = 0
        self._looks = 0
        self._look: asyncio.TimerHandle | None = None
        self.is_over = False
        """Whether no more messages can arrive."""
        wire.receive_on(channel.number, self)

    @property
    def count(self) -> int:
        """The number of messages of the queue that this process has."""
        return len(self._waiting) + len(self._held)

    async def fetch(self, limit: int) -> list[BrokerMessage]:
        """Wait for messages; return none if the server ended the consumer."""
        self._asked = True
        needed = min(limit + len(self._held), MOST)
        if needed > self._prefetch or not self._tag:
            # The queue was deleted meanwhile, or the server closed the channel.
            with suppress(ChannelNotFoundEntity, ChannelPreconditionFailed):
                turn = self._turn(self._begin(needed))
                await asyncio.wait({turn})
                if turn.cancelled():
                    raise BrokerUnavailable("RabbitMQ: the connection was closed")
                turn.result()
        if self._tag and not self._waiting and not self.is_over:
            self._fetcher = self._loop.create_future()
            try:
                await self._fetcher
            finally:
                self._fetcher = None
                self._asked = True
        if self._wire.lost:
            raise BrokerUnavailable(f"RabbitMQ: {self._wire.lost}")
        return self._pop(limit)

    def acknowledge(self, tags: Sequence[int]) -> None:
        """Acknowledge messages, with one frame if no earlier message is held."""
        held, channel = self._held, self._channel.number
        known = [tag for tag in tags if held.pop(tag, tag) is None]
        if not known:
            return
        highest = max(known)
        if next(iter(held), highest + 1) > highest:
            self._wire.send(settle(channel, highest, ACK, MULTIPLE))
        else:
            self._wire.send(b"".join(settle(channel, tag, ACK, 0) for tag in known))

    def give_back(self, tags: Sequence[int]) -> None:
        """Return messages to the queue for other consumers."""
        known = [tag for tag in tags if self._held.pop(tag, tag) is None]
        self._return(known)

    async def close(self) -> None:
        """Close the channel; the server returns its messages to the queue."""
        self.ended("closed")
        self.stop()
        async with self._answered():
            await self._channel.close()

    def stop(self) -> None:
        """Stop all timers and tasks."""
        self.is_over = True
        if self._look is not None:
            self._look.cancel()
        for turn in self._turns:
            turn.cancel()

    def delivered(self, tag: int, name: str, body: bytes) -> None:
        if self.is_over:
            return  # the channel is being closed; the server delivers it again
        self._last = tag
        self._waiting.append(BrokerMessage(body, (self, tag), name))
        if self._fetcher is not None and not self._fetcher.done():
            self._fetcher.set_result(None)

    def ended(self, reason: str) -> None:  # noqa: ARG002 - the wire knows it
        self.is_over = True
        # The server delivers them again. Settling one on a closed channel is fatal.
        self._waiting.clear()
        self._held.clear()
        if self._fetcher is not None and not self._fetcher.done():
            self._fetcher.set_result(None)

    def _pop(self, limit: int) -> list[BrokerMessage]:
        waiting = self._waiting
        popped = [waiting.popleft() for _ in range(min(limit, len(waiting)))]
        self._held.update(dict.fromkeys(message.handle[1] for message in popped))
        return popped

    def _return(self, tags: Sequence[int]) -> None:
        channel = self._channel.number
        self._wire.send(b"".join(settle(channel, tag, NACK, REQUEUE) for tag in tags))

    async def _begin(self, needed: int) -> None:
        """Start a consumer with this prefetch count, and cancel the previous one."""
        async with self._turning, self._answered():
            if self._tag and needed <= self._prefetch:
                return
            before = self._tag
            self._prefetch = needed if needed < FEW else 2 * needed
            await self._channel.basic_qos(prefetch_count=self._prefetch)
            begun = await self._channel.basic_consume(self._queue, _never)
            self._tag = begun.consumer_tag or ""
            if before:
                await self._channel.basic_cancel(before)
            self._seen, self._looks, self._asked = 0, 0, True
            self._look_later()

    async def _rest(self) -> None:
        """Cancel the consumer, and return the messages that were not fetched."""
        async with self._turning, self._answered():
            tag, self._tag = self._tag, ""
            if tag:
                await self._channel.basic_cancel(tag)
            self._return([message.handle[1] for message in self._waiting])
            self._waiting.clear()
            if self._fetcher is not None and not self._fetcher.done():
                self._fetcher.set_result(
                    None
                )  # it calls `fetch` again, which starts again

    def _look_later(self) -> None:
        if self._look is not None:
            self._look.cancel()
        self._look = self._loop.call_later(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        if self.is_over or not self._tag:
            return
        stale = bool(self._waiting) and self._waiting[0].handle[1] <= self._seen
        idle = self._fetcher is None and not self._asked
        if stale or idle:
            self._turn(self._rest())
        else:
            self._looks = 0 if self._seen < self._last else self._looks + 1
            self._seen, self._asked = self._last, False
            self._look_later()
            if self._looks >= VAIN_LOOKS and not self._held:
                self.ended("no message arrived")

    def _turn(self, change: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a change of the consumer to its end, even if its caller is cancelled."""
        task = self._loop.create_task(change)
        self._turns.add(task)
        task.add_done_callback(self._turned)
        return task

    def _turned(self, task: asyncio.Task[None]) -> None:
        self._turns.discard(task)
        if not task.cancelled():
            task.exception()  # the wire is lost then, and `fetch` raises


async def _never(_: object) -> None:
    """Satisfy aiormq, which requires a callback; the wire delivers the messages."""
