"""The engine's ports as fate would have them: skewed, lossy, slow and out of order."""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from backburner.domain.job import Instant
from backburner.engine.heartbeat import Pulse
from backburner.ports.bell import Ring
from backburner.ports.broker import Letter, Message
from backburner.ports.finding import Finding
from backburner.ports.store import Heart
from backburner.stores.sqlite.reader import Reader
from backburner.stores.sqlite.writer import Many, Writer
from backburner.testing.broker.memory import MemoryBroker
from backburner.testing.samples import NOON
from backburner.testing.simulation.world import BEAT, World

T = TypeVar("T")


class SkewedClock:
    """A wall clock that is wrong, beside the one monotonic clock of the machine."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.skew: Instant = world.random.randint(-3_000, 3_000)

    def now(self) -> Instant:
        return NOON + self.skew + self._world.now_ms()

    def monotonic(self) -> Instant:
        return self._world.now_ms()


class Hearer(Protocol):
    """Somebody who may be rung up."""

    context: contextvars.Context
    bell: "LossyBell"


class LossyBell:
    """A bell whose rings get lost, come late and come twice."""

    def __init__(self, world: World, others: Callable[[], Sequence[Hearer]]) -> None:
        self._world = world
        self._others = others
        self._rung = Ring(0)
        self._listeners: list[Callable[[Ring], None]] = []

    def ring(self, what: Ring) -> None:
        if not self._rung:
            self._world.loop.call_soon(self._tell)
        self._rung |= what

    def listen(self, callback: Callable[[Ring], None]) -> Callable[[], None]:
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def hear(self, what: Ring) -> None:
        """Call the listeners of this process."""
        for listener in tuple(self._listeners):
            listener(what)

    def _tell(self) -> None:
        what, self._rung = self._rung, Ring(0)
        for hearer in self._others():
            for delay in self._delays():
                self._world.loop.call_later(
                    delay, hearer.bell.hear, what, context=hearer.context
                )

    def _delays(self) -> Sequence[float]:
        """Draw when a ring arrives: usually once and at once."""
        lot = self._world.random.random()
        if lot < self._world.nature.loss:
            return ()
        return (0.0,) if lot < 0.9 else (0.0, round(2 * lot, 3))


class SlowWriter:
    """A writer that takes its time and sometimes fails, before the commit or after."""

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
    """A reader whose answers may be old news when they arrive."""

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
    """A broker that takes its time and sometimes does not say that it has done it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._inner = MemoryBroker(world.post.server)

    def cut(self) -> None:
        """Be gone, as the process is."""
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

    async def bury(self, queue: str, letters: Sequence[Letter]) -> None:
        await self._inner.bury(queue, letters)

    async def receive(self, queue: str, limit: int) -> Sequence[Message]:
        return await self._inner.receive(queue, limit)

    async def acknowledge(self, queue: str, messages: Sequence[Message]) -> None:
        await self._world.dawdle()
        await self._inner.acknowledge(queue, messages)
        self._world.post.trouble()

    async def give_back(self, queue: str, messages: Sequence[Message]) -> None:
        await self._world.dawdle()
        await self._inner.give_back(queue, messages)

    async def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        depths = await self._inner.depths(queues)
        await self._world.dawdle()
        return depths

    def examine(self) -> AsyncIterator[Finding]:
        return self._inner.examine()


class FailingHeart:
    """A heart whose beats fail while the store is out."""

    def __init__(self, inner: Heart, world: World) -> None:
        self._inner = inner
        self._world = world

    def beat(self, worker: str) -> bool:
        self._world.trouble()
        return self._inner.beat(worker)

    def close(self) -> None:
        self._inner.close()


class LaneHeartbeat:
    """A heartbeat that is a lane where the real one is a thread."""

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
