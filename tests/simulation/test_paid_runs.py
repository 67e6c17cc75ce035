"""Jobs with two model calls by a busy lane, in virtual time: each call is paid once."""

from datetime import timedelta

import pytest

from backburner import Context, capability
from backburner.domain.jobs.transitions import Limits
from backburner.engine.registry import Registry
from backburner.engine.submit.submission import Options
from backburner.testing.simulation import process
from backburner.testing.simulation.process import Unit
from backburner.testing.simulation.world import Nature, Variant, World
from tests.simulation.mutation import unmeasured

JOBS = 40
LONG_ENOUGH = 300
"""In seconds of virtual time; they need about a minute."""


def registry(world_of, calls):
    @capability("ask-twice", max_attempts=1, timeout=timedelta(hours=1))
    async def ask_twice(ctx: Context, number: int) -> None:
        for _ in range(2):
            async with ctx.lane("acme", "model"):
                calls.append(number)
                await world_of[0].sleep(1.0)
            ctx.used("model", input_tokens=60, output_tokens=40)

    return Registry([ask_twice])


async def live(world, units):
    for unit in units:
        unit.clock.skew = 0
        unit.start()
    asks = [("ask-twice", number, Options()) for number in range(JOBS)]
    engine = units[0].process.engine
    answer = world.loop.create_future()
    units[0].process.spawn(
        units[0].process.serve(lambda _: engine.submit_many(asks), answer)
    )
    await answer
    await world.sleep(LONG_ENOUGH)


@pytest.fixture
def outcome(monkeypatch):
    """Run a world; return the calls, and how many jobs are in each state."""
    monkeypatch.setattr(process, "LIMITS", Limits(throttled=timedelta(hours=24)))
    world_of, calls = [], []
    world = World(1, Variant(), registry(world_of, calls), tracing=False)
    world_of.append(world)
    world.nature = Nature(delay=0.0, loss=0.0, keep=timedelta(hours=1))
    units = []
    units += [Unit(world, name, slots=10, peers=units) for name in ("one", "other")]
    try:
        with unmeasured():
            world.loop.run_until_complete(world.spawn(live(world, units)))
        rows = world.disk.reading.exec_driver_sql(
            "SELECT state, attempt, count(*) FROM jobs GROUP BY 1, 2"
        )
        yield calls, [tuple(row) for row in rows]
    finally:
        world.close()


@pytest.mark.thorough
def test_forty_jobs_of_two_calls_make_eighty(outcome):
    calls, jobs = outcome

    assert [("succeeded", 1, JOBS)] == jobs
    assert 2 * JOBS == len(calls)
