"""Publishes messages on its own channel and waits for the server's confirms."""

import asyncio
from collections.abc import Sequence

from backburner.brokers.amqp.wire import Wire
from backburner.domain.errors import BrokerUnavailable


class Refused(BrokerUnavailable):
    """The server is reachable, but does not accept messages."""


class Publisher:
    """Publishes one window of messages at a time; confirms arrive in any order."""

    def __init__(self, wire: Wire, channel: int) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._sent = 0
        self._open = bytearray()
        """A byte for each message of the window: 1 until it is confirmed."""
        self._refused = False
        self._returned: set[str] = set()
        self._answer: asyncio.Future[None] | None = None
        self.channel = channel
        self.is_over = False
        """Whether the channel is closed."""
        wire.publish_on(channel, self)

    async def send(self, envelopes: Sequence[bytes]) -> set[str]:
        """Publish messages; return the missing queues of those that were returned."""
        if self._wire.blocked:
            raise Refused(f"RabbitMQ accepts no messages: {self._wire.blocked}")
        self._open = bytearray(b"\1" * len(envelopes))
        self._sent += len(envelopes)
        self._refused, self._returned = False, set()
        self._answer = self._loop.create_future()
        self._wire.send(b"".join(envelopes))
        try:
            await self._wire.drain()
            await self._answer
        finally:
            self._open, self._answer = bytearray(), None
        if self._refused:
            raise Refused("RabbitMQ rejected a message: a queue may be full")
        return self._returned

    def confirmed(self, tag: int, *, multiple: bool, kept: bool) -> None:
        place = tag - (self._sent - len(self._open))
        if place < 1:
            return  # of an earlier window that was abandoned
        self._refused |= not kept
        if multiple:
            self._open[:place] = bytes(place)
        else:
            self._open[place - 1] = 0
        if 1 not in self._open and self._answer and not self._answer.done():
            self._answer.set_result(None)

    def returned(self, queue: str) -> None:
        self._returned.add(queue)

    def blocked(self, reason: str) -> None:
        self._fail(Refused(f"RabbitMQ accepts no messages: {reason}"))

    def ended(self, reason: str) -> None:
        self.is_over = True
        self._fail(BrokerUnavailable(f"RabbitMQ: {reason}"))

    def _fail(self, error: BrokerUnavailable) -> None:
        if self._answer and not self._answer.done():
            self._answer.set_exception(error)
