"""
The real engine by one lane, in virtual time: nothing is lost or failed for throttling.

Two processes and more jobs than the provider can serve, whose limit steps from 60 to
30 to 90 calls a minute every two minutes and who gives no hints.
"""

import pytest

from backburner import Context, capability
from backburner.engine.registry import Registry
from backburner.testing.simulation.world import Variant, World
from tests.simulation.pair import lived, states
from tests.unit.domain.providers import SETTLING, STEP, WARM_UP, Sliding, limit_at

JOBS = 800
"""More than are served in all: there is always one that wants to call."""
ROUNDS = 2


class Provider:
    """A provider in virtual time that counts what it serves and refuses."""

    def __init__(self):
        self.inner = Sliding()
        self.steps = {}
        self.world = None

    async def call(self):
        now = self.world.loop.time()
        limit = limit_at(now)
        is_served = self.inner.serves(now, limit)
        if now >= WARM_UP and now % STEP >= SETTLING:
            step = self.steps.setdefault(int(now // STEP), [limit, 0, 0])
            step[1 if is_served else 2] += 1
        await self.world.sleep(1.0 if is_served else 0.1)
        return 200 if is_served else 429


def registry(provider):
    @capability("call", max_attempts=1)
    async def call(ctx: Context, _number: int) -> None:
        async with ctx.lane("acme", "model") as made:
            made.hear(await provider.call())

    return Registry([call])


@pytest.fixture
def outcome(monkeypatch):
    """Run a world; return what the provider saw and how many jobs are in each state."""
    provider = Provider()
    # One world is a small sample: of seeds 1 to 4 it comes to 67, 90, 94 and 91 %.
    world = World(3, Variant(), registry(provider), tracing=False)
    provider.world = world
    with lived(world, monkeypatch, "call", JOBS, WARM_UP * ROUNDS):
        yield provider, states(world)


@pytest.mark.thorough
def test_no_job_is_lost_or_failed_for_throttling(outcome, record_property):
    provider, jobs = outcome
    steps = provider.steps.values()
    served, refused = sum(s[1] for s in steps), sum(s[2] for s in steps)
    allowed = sum(limit * (STEP - SETTLING) / 60 for limit, *_ in steps)

    record_property(
        "told",
        f"lane, the engine in virtual time: {refused / (served + refused):.2%} "
        f"refused, {served / allowed:.0%} of the limits, jobs {jobs}",
    )
    states = {state for state, *_ in jobs}
    assert JOBS == sum(count for *_, count in jobs)
    assert {"succeeded", "scheduled"} <= states
    assert states <= {"succeeded", "scheduled", "queued", "running"}
    # One round is few calls; what many come to: tests/unit/domain/test_lane_learning.
    assert refused / (served + refused) < 0.03
    assert served / allowed > 0.8
