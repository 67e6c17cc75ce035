"""Jobs with two model calls by a busy lane, in virtual time: each call is paid once."""

from datetime import timedelta

import pytest

from backburner import Context, capability
from backburner.engine.registry import Registry
from backburner.testing.simulation.world import Variant, World
from tests.simulation.pair import lived, states

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


@pytest.fixture
def outcome(monkeypatch):
    """Run a world; return the calls, and how many jobs are in each state."""
    world_of, calls = [], []
    world = World(1, Variant(), registry(world_of, calls), tracing=False)
    world_of.append(world)
    with lived(world, monkeypatch, "ask-twice", JOBS, LONG_ENOUGH):
        yield calls, states(world)


@pytest.mark.thorough
def test_forty_jobs_of_two_calls_make_eighty(outcome):
    calls, jobs = outcome

    assert [("succeeded", 1, JOBS)] == jobs
    assert 2 * JOBS == len(calls)
