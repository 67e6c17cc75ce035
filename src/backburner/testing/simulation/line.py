"""A client's unreliable connections to the processes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from backburner.domain.errors import StoreUnavailable
from backburner.engine.engine import Engine
from backburner.engine.submit.submission import LOCAL
from backburner.testing.simulation.process import Disconnected, Process, Unit
from backburner.testing.simulation.world import World

T = TypeVar("T")

PATIENCE: Final = 8.0
LOST: Final = (Disconnected, StoreUnavailable, TimeoutError)
"""Errors after which the result of a request is unknown."""


class Line:
    """Calls any process that is running."""

    def __init__(self, world: World, units: Sequence[Unit]) -> None:
        self._world = world
        self._units = units

    async def call(
        self, verb: Callable[[Engine], Awaitable[T]], patience: float = PATIENCE
    ) -> T:
        """Call an operation of the engine; raise if there is no answer in time."""
        process = self._reach()
        answer: asyncio.Future[T] = self._world.loop.create_future()
        process.calls[answer] = None
        task = process.spawn(process.serve(verb, answer))
        try:
            async with asyncio.timeout(patience):
                return await answer
        finally:
            process.calls.pop(answer, None)
            task.cancel()

    def _reach(self) -> Process:
        up = [unit.process for unit in self._units if unit.process is not None]
        if not up:
            raise Disconnected
        return self._world.random.choice(up)


class Observer:
    """Follows the overall stream of events, over one connection after the other."""

    def __init__(self, world: World, line: Line) -> None:
        self.seen: list[int] = []
        """The number of each event, in the order of arrival."""
        self._world = world
        self._line = line
        self._connection = 0

    async def observe(self) -> None:
        """Follow the stream, and reconnect after each error."""
        while True:
            self._connection += 1
            patience = self._world.random.choice((1.0, 5.0, 30.0))
            try:
                await self._line.call(self._read, patience)
            except LOST:
                await self._world.sleep(0.2)

    async def _read(self, engine: Engine) -> None:
        mine = self._connection
        after = self.seen[-1] if self.seen else 0
        async for event in engine.stream(LOCAL, after=after):
            # Ignore events of a connection that was closed.
            if mine == self._connection:
                self.seen.append(event.seq)
