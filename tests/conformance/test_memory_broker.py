"""The broker in memory keeps the promises of the broker port."""

import itertools
from datetime import timedelta

import pytest

from backburner.ports.broker import DEAD_DAYS
from backburner.testing.broker import BrokerConformance
from backburner.testing.broker.memory import MemoryBroker, MemoryServer


class Outside:
    """What tests do to the server in memory."""

    def __init__(self):
        self._server = MemoryServer()

    def broker(self):
        return MemoryBroker(self._server)

    async def put(self, queue, body, *, name=""):
        self._server.put(queue, body, name=name)

    async def dead_letters(self, queue):
        return self._server.dead[queue]

    async def kept_for(self, _queue):
        return timedelta(days=DEAD_DAYS)

    async def kill(self, broker):
        self._server.cut(broker)

    async def cut(self):
        self._server.cut()

    async def stop(self):
        self._server.stop()

    async def start(self):
        self._server.start()

    async def freeze(self):
        self._server.stop()


class TestMemoryBroker(BrokerConformance):
    @pytest.fixture
    def server(self):
        return Outside()

    @pytest.fixture
    def a_queue(self):
        numbers = itertools.count()
        return lambda word: f"{word}-{next(numbers)}"
