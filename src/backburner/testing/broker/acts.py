"""Helpers of the broker tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from backburner.domain.errors import BrokerUnavailable
from backburner.ports.broker import Broker, BrokerMessage
from backburner.testing.broker.hooks import Server

PATIENCE = 30.0
SECONDS = 10.0
"""The time limit for what must happen "within seconds"."""
A_WHILE = 0.3

Connect = Callable[[], Awaitable[Broker]]
NameQueue = Callable[[str], str]


class WithBrokers:
    """Provides open brokers, and closes them."""

    @pytest.fixture
    async def connect(self, server: Server) -> AsyncIterator[Connect]:
        """Open another client, as another process would."""
        opened: list[Broker] = []

        async def connect() -> Broker:
            broker = server.broker()
            opened.append(broker)
            await broker.open()
            return broker

        yield connect
        for broker in opened:
            await broker.close()

    @pytest.fixture
    async def broker(self, connect: Connect) -> Broker:
        return await connect()

    @pytest.fixture
    def queue(self, a_queue: NameQueue) -> str:
        return a_queue("jobs")


async def take(broker: Broker, queue: str, count: int) -> list[BrokerMessage]:
    """Receive this number of messages."""
    taken: list[BrokerMessage] = []
    async with asyncio.timeout(PATIENCE):
        while len(taken) < count:
            taken += await broker.receive(queue, count - len(taken))
    return taken


async def finish(broker: Broker, queue: str, count: int) -> list[BrokerMessage]:
    """Receive this number of messages and acknowledge them."""
    taken = await take(broker, queue, count)
    await broker.acknowledge(queue, taken)
    return taken


async def nothing_comes(broker: Broker, queue: str) -> bool:
    """Return whether no message arrives for a while."""
    try:
        async with asyncio.timeout(A_WHILE):
            await broker.receive(queue, 100)
    except TimeoutError:
        return True
    return False


async def has_depths(broker: Broker, depths: Mapping[str, int]) -> bool:
    """Wait until queues have these depths; some brokers count with a delay."""
    return await comes_true(lambda: _are(broker, depths))


async def _are(broker: Broker, depths: Mapping[str, int]) -> bool:
    return dict(await broker.depths(list(depths))) == dict(depths)


async def comes_true(is_so: Callable[[], Awaitable[bool]]) -> bool:
    """Poll a condition that only the broker knows."""
    try:
        async with asyncio.timeout(SECONDS):
            while not await is_so():
                await pause()
    except TimeoutError:
        return False
    return True


async def pause(seconds: float = 0.05) -> None:
    """Wait for a moment, as the broker does not report when it is done."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


async def recovered(act: Callable[[], Awaitable[object]]) -> None:
    """Repeat a call until it succeeds; the broker may be unavailable."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await act()
            except BrokerUnavailable:
                await pause()
            else:
                return
