"""Instances over one store and one broker in memory."""

from contextlib import AsyncExitStack

import pytest

from backburner import Backburner
from backburner.settings import Settings
from backburner.testing.broker.memory import MemoryBroker
from tests.engine.foreign.acts import SAID, USUAL, Fickle, greet


@pytest.fixture
async def opened(store_url, server):
    """Open instances over one store and one broker."""
    async with AsyncExitStack() as stack:

        async def open_instance(*capabilities, works=True, **fields):
            said = {name: fields.pop(name) for name in SAID & {*fields}}
            backburner = Backburner(
                Settings(store=store_url, **USUAL | said),
                capabilities=[greet, *capabilities],
                broker=MemoryBroker(server),
                **fields,
            )
            await stack.enter_async_context(backburner)
            if works:
                await backburner.start_worker()
            return backburner

        yield open_instance


@pytest.fixture
def fickle():
    return Fickle()
