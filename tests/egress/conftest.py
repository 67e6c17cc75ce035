"""Receivers and ways out to them."""

import socket
import ssl
from contextlib import AsyncExitStack

import pytest

from backburner.domain.webhooks.address import Reach
from backburner.egress.client import GuardedEgress
from tests.egress.receiver import Receiver

LONG = 20.0
NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.fixture
async def receiving():
    """Open receivers, all closed at the end."""
    async with AsyncExitStack() as stack:

        async def start(behave, **options):
            return await stack.enter_async_context(Receiver(behave, **options))

        yield start


@pytest.fixture
async def egress():
    """Build egresses, all closed at the end; the usual one reaches loopback."""
    async with AsyncExitStack() as stack:

        def build(reach=None, *, connect=LONG, total=LONG, **options):
            options.setdefault("trust", NOBODY)
            made = GuardedEgress(
                reach or Reach.read(["127.0.0.0/8", "receiver.test"]),
                connect_seconds=connect,
                total_seconds=total,
                **options,
            )
            stack.push_async_callback(made.close)
            return made

        yield build


@pytest.fixture
def black_hole():
    """A port whose queue is full: whoever calls is not even refused."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        callers = [socket.socket() for _ in range(4)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]
        for caller in callers:
            caller.close()


@pytest.fixture
def closed_port():
    """A port that nobody listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
