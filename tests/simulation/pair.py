"""Two processes of one world that share jobs, with nothing but their lanes between."""

from contextlib import contextmanager
from datetime import timedelta

from backburner.domain.jobs.transitions import Limits
from backburner.engine.submit.submission import Options
from backburner.testing.simulation import process
from backburner.testing.simulation.process import Unit
from backburner.testing.simulation.world import Nature
from tests.simulation.mutation import unmeasured

PATIENT = Limits(throttled=timedelta(hours=24))
"""Nothing fails because it waited for its lane."""


@contextmanager
def lived(world, monkeypatch, name, count, seconds):
    """Run jobs of a capability for some virtual seconds; then close the world."""
    monkeypatch.setattr(process, "LIMITS", PATIENT)
    world.nature = Nature(delay=0.0, loss=0.0, keep=timedelta(hours=1))
    units = []
    units += [Unit(world, which, slots=10, peers=units) for which in ("one", "other")]
    asks = [(name, number, Options()) for number in range(count)]
    try:
        with unmeasured():
            world.loop.run_until_complete(
                world.spawn(_live(world, units, asks, seconds))
            )
        yield
    finally:
        world.close()


async def _live(world, units, asks, seconds):
    for unit in units:
        unit.clock.skew = 0
        unit.start()
    engine = units[0].process.engine
    answer = world.loop.create_future()
    units[0].process.spawn(
        units[0].process.serve(lambda _: engine.submit_many(asks), answer)
    )
    await answer
    await world.sleep(seconds)


def states(world):
    """Return how many jobs are in each state after each number of attempts."""
    rows = world.disk.reading.exec_driver_sql(
        "SELECT state, attempt, count(*) FROM jobs GROUP BY 1, 2"
    )
    return [tuple(row) for row in rows]
