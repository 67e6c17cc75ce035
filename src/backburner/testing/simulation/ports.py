"""Unreliable implementations of the engine's ports: skewed, lossy and slow."""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from backburner.domain.jobs.job import Instant
from backburner.engine.run.heartbeat import Pulse
from backburner.ports.broker import BrokerMessage, DeadLetter
from backburner.ports.finding import Finding
from backburner.ports.notifier import Notification
from backburner.ports.store.workers import Heart, Vitals
from backburner.stores.sqlite.reader import Reader
from backburner.stores.sqlite.writer import Many, Writer
from backburner.testing.broker.memory import MemoryBroker
from backburner.testing.samples import NOON
from backburner.testing.simulation.world import BEAT, World

T = TypeVar("T")


class SkewedClock:
    """A wrong wall clock, and the machine's monotonic clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.skew: Instant = world.random.randint(-3_000, 3_000)

    def now(self) -> Instant:
        return NOON + self.skew + self._world.now_ms()

    def monotonic(self) -> Instant:
        return self._world.now_ms()


class Hearer(Protocol):
    """A process that can be notified."""

    context: contextvars.Context
    notifier: "LossyNotifier"


class LossyNotifier:
    """A notifier whose notifications may be lost, late or duplicated."""

    def __init__(self, world: World, others: Callable[[], Sequence[Hearer]]) -> None:
        self._world = world
        self._others = others
        self._rung = Notification(0)
        self._listeners: list[Callable[[Notification], None]] = []

    def notify(self, what: Notification) -> None:
        if not self._rung:
            self._world.loop.call_soon(self._tell)
        self._rung |= what

    def listen(self, callback: Callable[[Notification], None]) -> Callable[[], None]:
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def hear(self, what: Notification) -> None:
        """Call the listeners of this process."""
        for listener in tuple(self._listeners):
            listener(what)

    def _tell(self) -> None:
        what, self._rung = self._rung, Notification(0)
        for hearer in self._others():
            for delay in self._delays():
                self._world.loop.call_later(
                    delay, hearer.notifier.hear, what, context=hearer.context
                )

    def _delays(self) -> Sequence[float]:
        """Draw when a notification arrives: usually once and at once."""
        lot = self._world.random.random()
        if lot < self._world.nature.loss:
            return ()
        return (0.0,) if lot < 0.9 else (0.0, round(2 * lot, 3))


class SlowWriter:
    """A slow writer that sometimes fails, before or after the commit."""

    def __init__(self, inner: Writer, world: World) -> None:
        self._inner = inner
        self._world = world

    async def run(self, many: Many, argument: Any, *, durable: bool = True) -> Any:
        await self._world.dawdle()
        await self._world.sleep(self._world.writes_at - self._world.loop.time())
        self._world.trouble()
        answer = await self._inner.run(many, argument, durable=durable)
        self._world.trouble()
        return answer

    def close(self) -> None:
        self._inner.close()


class SlowReader:
    """A slow reader, whose results may be outdated when they arrive."""

    def __init__(self, inner: Reader, world: World) -> None:
        self._inner = inner
        self._world = world

    async def run(self, read: Callable[[sa.Connection], T]) -> T:
        self._world.trouble()
        answer = await self._inner.run(read)
        await self._world.dawdle()
        return answer

    def close(self) -> None:
        self._inner.close()


class SlowBroker:
    """A slow broker that sometimes fails after it has done its work."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._inner = MemoryBroker(world.post.server)

    def cut(self) -> None:
        """Close the connections, as the end of the process does."""
        self._world.post.server.cut(self._inner)

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    async def ping(self) -> None:
        await self._inner.ping()

    async def publish(self, counts: Mapping[str, int]) -> None:
        await self._world.dawdle()
        await self._inner.publish(counts)
        self._world.post.trouble()

    async def publish_dead_letters(
        self, queue: str, dead_letters: Sequence[DeadLetter]
    ) -> None:
        await self._inner.publish_dead_letters(queue, dead_letters)

    async def receive(self, queue: str, limit: int) -> Sequence[BrokerMessage]:
        return await self._inner.receive(queue, limit)

    async def acknowledge(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        await self._world.dawdle()
        await self._inner.acknowledge(queue, messages)
        self._world.post.trouble()

    async def give_back(self, queue: str, messages: Sequence[BrokerMessage]) -> None:
        await self._world.dawdle()
        await self._inner.give_back(queue, messages)

    async def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        depths = await self._inner.depths(queues)
        await self._world.dawdle()
        return depths

    def examine(self) -> AsyncIterator[Finding]:
        return self._inner.examine()


class FailingHeart:
    """A heart that fails while the store is unavailable."""

    def __init__(self, inner: Heart, world: World) -> None:
        self._inner = inner
        self._world = world

    def beat(self, worker: str, vitals: Vitals) -> bool:
        self._world.trouble()
        return self._inner.beat(worker, vitals)

    def close(self) -> None:
        self._inner.close()


class LaneHeartbeat:
    """A heartbeat in its own lane; the real one has a thread."""

    def __init__(
        self, pulse: Pulse, world: World, context: contextvars.Context
    ) -> None:
        self._pulse = pulse
        self._world = world
        self._context = context
        self._task: asyncio.Task[None] | None = None

    def start(self, worker: str) -> None:
        self._pulse.begin(worker)
        if self._task is None:
            self._task = self._world.loop.create_task(
                self._run(), context=self._context
            )

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._pulse.close()

    async def _run(self) -> None:
        while True:
            await self._world.sleep(BEAT)
            self._pulse.beat()
            self._pulse.write_lines()
