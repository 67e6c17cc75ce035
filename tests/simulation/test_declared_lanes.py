"""A lane that is declared by its model binds `ctx.ask`, in virtual time."""

from functools import partial

import pytest

from backburner import Context, Lane, capability
from backburner.ai.mock import Mock
from backburner.engine.models.asking import Providers
from backburner.engine.registry import Registry
from backburner.engine.run.runtime import Runtime
from backburner.ports.ai import Reply
from backburner.testing.doubles import FrozenClock
from backburner.testing.simulation import process
from backburner.testing.simulation.world import Variant, World
from tests.simulation.pair import lived

JOBS = 30
MINUTE = 60
SPAN = 4 * MINUTE


class Provider(Mock):
    """Notes when it was called; its calls go by a lane with a digest of its key."""

    is_paced = True

    def __init__(self):
        super().__init__(FrozenClock())
        self.name, self.credential = "openai", "sk-secret"
        self.at = []
        self.world = None

    async def chat(self, chat, _hear=None):
        self.at.append(self.world.loop.time())
        return Reply("yes", chat.model)


@pytest.fixture
def called_at(monkeypatch):
    """Run a world; return when the provider was called."""
    provider = Provider()

    @capability("ask", max_attempts=1)
    async def ask(ctx: Context, number: int) -> str:
        return await ctx.ask(str(number))

    chain = Providers([provider], FrozenClock())
    monkeypatch.setattr(process, "Runtime", partial(Runtime, providers=chain))
    registry = Registry([ask])
    registry.lanes["openai/mock"] = Lane("openai/mock", requests=6)
    world = World(1, Variant(), registry, tracing=False)
    provider.world = world
    with lived(world, monkeypatch, "ask", JOBS, SPAN):
        yield provider.at


def test_six_requests_a_minute_go_out_by_a_lane_of_six(called_at):
    most = max(sum(s <= at < s + MINUTE for at in called_at) for s in called_at)

    assert 6 == most, "no minute holds more, and the limit is used"
    assert len(called_at) >= 6 * (SPAN // MINUTE) - 4
