"""
Any broker with names that no other run of the tests uses: `private:PREFIX:URL`.

A plug-in like anybody's: it is found by its entry point, beside this file.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Self

from backburner.adapters import find_broker
from backburner.ports.broker import Broker, BrokerMessage, DeadLetter
from backburner.ports.finding import Finding


class PrivateBroker:
    """A `Broker` that puts a prefix before the name of every queue."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix

    @classmethod
    def from_url(cls, url: str) -> Self:
        _, prefix, inner = url.split(":", 2)
        broker = find_broker(inner)
        assert broker is not None
        return cls(broker, prefix)

    async def open(self) -> None:
        await self._broker.open()

    async def close(self) -> None:
        await self._broker.close()

    async def ping(self) -> None:
        await self._broker.ping()

    async def publish(self, counts: Mapping[str, int]) -> None:
        await self._broker.publish({self._name(q): n for q, n in counts.items()})

    async def publish_dead_letters(
        self, queue: str, letters: Sequence[DeadLetter]
    ) -> None:
        await self._broker.publish_dead_letters(self._name(queue), letters)

    async def receive(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        return await self._broker.receive(self._name(queue), limit)

    async def acknowledge(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        await self._broker.acknowledge(self._name(queue), messages)

    async def give_back(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        await self._broker.give_back(self._name(queue), messages)

    async def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        found = await self._broker.depths([self._name(queue) for queue in queues])
        return {queue: found[self._name(queue)] for queue in queues}

    def examine(self) -> AsyncIterator[Finding]:
        return self._broker.examine()

    def _name(self, queue: str) -> str:
        return self._prefix + queue
