"""Budget holds of a simulation that belong to no job."""

from collections.abc import Awaitable
from datetime import timedelta
from typing import Final

from backburner.domain.errors import CallerError
from backburner.engine.engine import Engine
from backburner.engine.submit.submission import Options
from backburner.testing.simulation.line import LOST, Line
from backburner.testing.simulation.work import Script
from backburner.testing.simulation.world import World

PAUSE: Final = 0.3
CROWDS: Final = 0.3
"""The probability of concurrent reservations."""


async def hold(world: World, line: Line, seconds: float) -> None:
    """Reserve amounts repeatedly, one at a time or concurrently."""
    lots, end = world.purse.lots, world.loop.time() + seconds
    while world.loop.time() < end:
        await world.sleep(lots.expovariate(1 / PAUSE))
        if lots.random() < CROWDS:
            crowd = [_try(world, _submit(world, line)) for _ in range(5)]
            for task in [world.spawn(one) for one in crowd]:
                await task
        else:
            await _try(world, _once(world, line))


async def _try(world: World, act: Awaitable[None]) -> None:
    try:
        await act
    except (*LOST, CallerError) as error:
        world.note("holder met", type(error).__name__)


async def _submit(world: World, line: Line) -> None:
    steps = [world.purse.lots.choice(("succeed", "outlive lease"))]
    script, options = Script(steps=steps, effect=True), Options(tokens=20)
    answer = await line.call(lambda e: e.submit("sim.work", script, options))
    world.ledger.acknowledge(answer.id)


async def _once(world: World, line: Line) -> None:
    """Reserve an amount without a job; settle it, release it or let it expire."""
    lots = world.purse.lots
    tokens, lasts = lots.choice((1, 10, 25)), timedelta(seconds=lots.choice((1, 3)))

    async def reserve(engine: Engine) -> str:
        return (await engine.budgets.reserve(tokens, lasts=lasts)).id

    held = await line.call(reserve)
    fate = lots.choice(("settle", "settle", "release", "forget"))
    used = lots.choice((0, tokens, 2 * tokens))
    await world.sleep(lots.random() * 2)
    for _ in range(lots.choice((1, 2))):
        if fate == "settle":
            await line.call(lambda engine: engine.budgets.settle(held, used))
        elif fate == "release":
            await line.call(lambda engine: engine.budgets.release(held))
