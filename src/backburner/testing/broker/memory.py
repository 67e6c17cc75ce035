"""A broker in memory that does whatever a broker may do, and misbehaves on request."""

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from backburner.domain.errors import BrokerUnavailable
from backburner.domain.message import WORK_AVAILABLE
from backburner.ports.broker import BrokerMessage, DeadLetter
from backburner.ports.finding import Finding, Status


@dataclass(slots=True)
class Mischief:
    """How messages are treated on their way."""

    copies: int = 1
    """How often each is delivered."""
    loss: float = 0.0
    """The share of messages that are lost."""
    is_shuffled: bool = False
    """Whether they are delivered in random order."""
    lots: random.Random = field(default_factory=lambda: random.Random(0))


class MemoryServer:
    """The shared part of brokers: queues, waiting receivers, and misbehaviour."""

    def __init__(self, mischief: Mischief | None = None) -> None:
        self.mischief = mischief or Mischief()
        self.queues: defaultdict[str, list[BrokerMessage]] = defaultdict(list)
        self.dead: defaultdict[str, list[DeadLetter]] = defaultdict(list)
        self.is_down = False
        self.published = 0
        """How many messages were published."""
        self.delivered = 0
        """How many messages were delivered."""
        self._handed: dict[int, tuple[MemoryBroker, str, BrokerMessage]] = {}
        self._numbers = itertools.count(1)
        self._waiting: dict[asyncio.Event, str] = {}

    def put(self, queue: str, *bodies: bytes, name: str = "") -> None:
        """Accept messages, as from any program."""
        mischief = self.mischief
        for body in bodies:
            for _ in range(mischief.copies):
                if mischief.lots.random() >= mischief.loss:
                    handle = next(self._numbers)
                    self.queues[queue].append(BrokerMessage(body, handle, name))
        self._call(queue)

    def take(
        self, broker: "MemoryBroker", queue: str, limit: int
    ) -> list[BrokerMessage]:
        """Deliver messages."""
        ready = self.queues[queue]
        taken: list[BrokerMessage] = []
        while ready and len(taken) < limit:
            lots = self.mischief.lots
            place = lots.randrange(len(ready)) if self.mischief.is_shuffled else 0
            taken.append(ready.pop(place))
        self.delivered += len(taken)
        self._handed |= {one.handle: (broker, queue, one) for one in taken}
        return taken

    def forget(self, messages: Sequence[BrokerMessage]) -> None:
        """Acknowledge messages, unless they were delivered to others meanwhile."""
        for message in messages:
            self._handed.pop(message.handle, None)

    def put_back(self, messages: Sequence[BrokerMessage]) -> None:
        """Return messages to their queue."""
        held = [self._handed.pop(one.handle, None) for one in messages]
        for _, queue, message in filter(None, held):
            fresh = message._replace(handle=next(self._numbers))
            self.queues[queue].append(fresh)
            self._call(queue)

    def cut(self, broker: "MemoryBroker | None" = None) -> None:
        """Close one connection, or all of them; messages held by them are returned."""
        self.put_back(
            [one for who, _, one in [*self._handed.values()] if broker in {None, who}]
        )

    def flush(self) -> None:
        """Delete everything."""
        self.queues.clear()
        self._handed.clear()

    def stop(self) -> None:
        """Stop answering."""
        self.is_down = True
        self.cut()
        for event in self._waiting:
            event.set()

    def start(self) -> None:
        """Answer again."""
        self.is_down = False

    def depth(self, queue: str) -> int:
        """Count a queue's messages, including delivered ones."""
        return len(self.queues.get(queue, ())) + self.handed(queue)

    def handed(self, queue: str) -> int:
        """Count a queue's delivered messages that are not acknowledged."""
        return sum(1 for _, name, _ in self._handed.values() if name == queue)

    async def arrival(self, queue: str) -> None:
        """Wait until there may be a message, or the server is stopped."""
        event = asyncio.Event()
        self._waiting[event] = queue
        try:
            await event.wait()
        finally:
            del self._waiting[event]

    def _call(self, queue: str) -> None:
        for event, name in self._waiting.items():
            if name == queue:
                event.set()


class MemoryBroker:
    """A program's connection to a `MemoryServer`."""

    def __init__(self, server: MemoryServer | None = None) -> None:
        self.server = server or MemoryServer()

    async def open(self) -> None:
        self._reach()

    async def close(self) -> None:
        self.server.cut(self)

    async def ping(self) -> None:
        self._reach()

    async def publish(self, counts: Mapping[str, int]) -> None:
        self._reach()
        for queue, count in counts.items():
            self.server.published += count
            self.server.put(queue, *[WORK_AVAILABLE] * count)

    async def publish_dead_letters(
        self, queue: str, dead_letters: Sequence[DeadLetter]
    ) -> None:
        self._reach()
        self.server.dead[queue] += dead_letters

    async def receive(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        while True:
            self._reach()
            if taken := self.server.take(self, queue, limit):
                return taken
            await self.server.arrival(queue)

    async def acknowledge(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        del queue
        self._reach()
        self.server.forget(messages)

    async def give_back(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        del queue
        self._reach()
        self.server.put_back(messages)

    async def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        self._reach()
        return {queue: self.server.depth(queue) for queue in queues}

    async def examine(self) -> AsyncIterator[Finding]:
        self._reach()
        yield Finding(
            Status.PASS, "broker", "in memory, lost at the end of this process"
        )

    def _reach(self) -> None:
        if self.server.is_down:
            raise BrokerUnavailable("the broker in memory is down")
