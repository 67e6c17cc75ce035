"""Tests of messages from other programs: they arrive unchanged."""

import pytest

from backburner.domain.message import WORK_AVAILABLE
from backburner.ports.broker import Broker
from backburner.testing.broker.acts import WithBrokers, finish, has_depths, take
from backburner.testing.broker.hooks import Server

BODIES = [
    b'{"capability": "echo", "input": {}}',
    '{"capability": "große Wörter", "input": "\N{OCTOPUS}"}'.encode(),
    b"no JSON at all\nsecond line",
    b"x" * 100_000,
]


class ForeignConformance(WithBrokers):
    """Messages of other programs arrive byte for byte and with their ids."""

    @pytest.mark.parametrize("body", BODIES, ids=["json", "unicode", "text", "large"])
    async def test_a_body_arrives_byte_for_byte(
        self, broker: Broker, server: Server, queue: str, body: bytes
    ) -> None:
        await make(broker, queue)
        await server.put(queue, body, name="m-1")
        [message] = await finish(broker, queue, 1)

        assert (body, "m-1") == (message.body, message.id)

    async def test_a_message_may_have_no_name(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        await make(broker, queue)
        await server.put(queue, BODIES[0])
        [message] = await finish(broker, queue, 1)

        assert BODIES[0] == message.body

    async def test_hints_and_others_arrive_side_by_side(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        await broker.publish({queue: 1})
        await server.put(queue, BODIES[0], name="m-1")
        await broker.publish({queue: 1})
        taken = await finish(broker, queue, 3)

        assert sorted([WORK_AVAILABLE, BODIES[0], WORK_AVAILABLE]) == sorted(
            m.body for m in taken
        )

    async def test_one_that_is_given_back_comes_again_as_it_was(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        await make(broker, queue)
        await server.put(queue, BODIES[1], name="m-1")
        await broker.give_back(queue, await take(broker, queue, 1))
        [message] = await finish(broker, queue, 1)

        assert (BODIES[1], "m-1") == (message.body, message.id)

    async def test_they_count_among_what_waits(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        await broker.publish({queue: 1})
        await server.put(queue, BODIES[0], name="m-1")

        assert await has_depths(broker, {queue: 2})


async def make(broker: Broker, queue: str) -> None:
    """Create a queue by using it."""
    await broker.publish({queue: 1})
    await finish(broker, queue, 1)
