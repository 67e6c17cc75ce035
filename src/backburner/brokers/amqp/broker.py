"""The broker port over RabbitMQ."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Self

from yarl import URL

from backburner.brokers.amqp.consumer import Consumer
from backburner.brokers.amqp.envelope import Post
from backburner.brokers.amqp.examination import examine
from backburner.brokers.amqp.link import Link
from backburner.domain.errors import ConfigurationError
from backburner.domain.message import WORK_AVAILABLE
from backburner.ports.broker import DEAD, BrokerMessage, DeadLetter
from backburner.ports.finding import Finding

DEFAULTS = {"heartbeat": "10", "name": "backburner"}
PORTS = {"amqp": 5672, "amqps": 5671}


class AmqpBroker:
    """
    Two connections: one publishes and queries, the other receives.

    A server that is short of memory or disk stops reading from connections that
    publish, but it must still read acknowledgements.
    """

    def __init__(self, url: URL) -> None:
        self._url = url
        self._out, self._in = Link(url), Link(url)
        self._publishing = asyncio.Lock()

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Create from `amqp[s]://user:password@host:port/vhost?heartbeat=10`."""
        try:
            parsed = URL(url)
            parsed = parsed.with_port(parsed.port or PORTS[parsed.scheme])
        except (KeyError, ValueError):
            # The URL may contain a password: neither it nor the error is shown.
            raise ConfigurationError(
                "BACKBURNER_TRANSPORT is not a URL such as "
                "amqp://user:password@host:5672/"
            ) from None
        missing = {k: v for k, v in DEFAULTS.items() if k not in parsed.query}
        return cls(parsed.update_query(missing))

    async def open(self) -> None:
        await self.ping()

    async def close(self) -> None:
        await asyncio.gather(self._in.close(), self._out.close())

    async def ping(self) -> None:
        session = await self._out.session()
        await session.ping()

    async def publish(self, counts: Mapping[str, int]) -> None:
        await self._post(
            [p for q, n in counts.items() for p in [Post(q, WORK_AVAILABLE)] * n]
        )

    async def publish_dead_letters(
        self, queue: str, dead_letters: Sequence[DeadLetter]
    ) -> None:
        name = f"{queue}{DEAD}"
        await self._post(
            [
                Post(name, dead_letter.body, dead_letter.id)
                for dead_letter in dead_letters
            ]
        )

    async def _post(self, posts: Sequence[Post]) -> None:
        if posts:
            async with self._publishing:
                session = await self._out.session()
                await session.post(posts)

    async def receive(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        while True:
            session = await self._in.session()
            consumer = await session.consumer(queue)
            if messages := await consumer.fetch(limit):
                return messages

    async def acknowledge(self, queue: str, messages: Sequence[BrokerMessage]) -> None:  # noqa: ARG002 - a message knows its channel
        for consumer, tags in _by_consumer(messages).items():
            consumer.acknowledge(tags)

    async def give_back(self, queue: str, messages: Sequence[BrokerMessage]) -> None:  # noqa: ARG002 - a message knows its channel
        for consumer, tags in _by_consumer(messages).items():
            consumer.give_back(tags)

    async def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        """
        Count the messages that wait on the server and those held by this process.

        AMQP does not report what other processes hold; they hold it only briefly.
        """
        session = await self._out.session()
        return {
            queue: (await session.depth(queue) or 0) + self._holds(queue)
            for queue in queues
        }

    def _holds(self, queue: str) -> int:
        session = self._in.current
        consumer = session and session.consumers.get(queue)
        return consumer.count if consumer else 0

    def examine(self) -> AsyncIterator[Finding]:
        return examine(self._url)


def _by_consumer(messages: Sequence[BrokerMessage]) -> dict[Consumer, list[int]]:
    grouped: dict[Consumer, list[int]] = {}
    for message in messages:
        consumer, tag = message.handle
        grouped.setdefault(consumer, []).append(tag)
    return grouped
