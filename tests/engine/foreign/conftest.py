"""Houses over one store and one broker in memory."""

from contextlib import AsyncExitStack

import pytest

from backburner import Backburner
from backburner.settings import Settings
from backburner.testing.broker.memory import MemoryBroker
from tests.engine.foreign.acts import SAID, USUAL, Fickle, greet


@pytest.fixture
async def opened(store_url, server):
    """Open houses over one store and one broker."""
    async with AsyncExitStack() as stack:

        async def open_house(*capabilities, works=True, **fields):
            said = {name: fields.pop(name) for name in SAID & {*fields}}
            house = Backburner(
                Settings(store=store_url, **USUAL | said),
                capabilities=[greet, *capabilities],
                broker=MemoryBroker(server),
                **fields,
            )
            await stack.enter_async_context(house)
            if works:
                await house.start_worker()
            return house

        yield open_house


@pytest.fixture
def fickle():
    return Fickle()
