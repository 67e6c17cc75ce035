"""Sends signals to the waiting jobs of a simulation."""

from typing import Final

from backburner.domain.errors import CallerError
from backburner.testing.simulation.line import LOST, Line
from backburner.testing.simulation.patience import SIGNAL
from backburner.testing.simulation.world import World

PAUSE: Final = 0.6


async def signal_all(world: World, line: Line) -> None:
    """Signal one job after the other, for ever; some from two callers at once."""
    patience, value = world.patience, 0
    while True:
        await world.sleep(patience.lots.expovariate(1 / PAUSE))
        for job in patience.untold(world.disk):
            for _ in range(patience.lots.choice((1, 2))):
                value += 1
                world.spawn(_signal(world, line, job, value))


async def _signal(world: World, line: Line, job: str, value: int) -> None:
    try:
        await line.call(lambda engine: engine.signal(job, SIGNAL, value))
    except (*LOST, CallerError) as error:
        world.note("signal met", type(error).__name__)
    else:
        world.patience.accept(job, value)
