"""How a client reaches the processes: over connections that break."""

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
"""What leaves a client in the dark: it was done, or it was not."""


class Line:
    """Asks any of the processes that are up."""

    def __init__(self, world: World, units: Sequence[Unit]) -> None:
        self._world = world
        self._units = units

    async def call(
        self, verb: Callable[[Engine], Awaitable[T]], patience: float = PATIENCE
    ) -> T:
        """Ask for something; whatever breaks, be told in the end."""
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
    """Reads the overall stream of events, for ever, from one connection to the next."""

    def __init__(self, world: World, line: Line) -> None:
        self.seen: list[int] = []
        """The number of each event, as they came."""
        self._world = world
        self._line = line
        self._connection = 0

    async def observe(self) -> None:
        """Read on, whatever breaks."""
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
            # What comes over a line that was hung up is not heard.
            if mine == self._connection:
                self.seen.append(event.seq)
