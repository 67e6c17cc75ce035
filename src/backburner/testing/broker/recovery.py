"""Tests of a broker that becomes unavailable and returns."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import pytest

from backburner.domain.errors import BrokerUnavailable
from backburner.domain.message import WORK_AVAILABLE
from backburner.ports.broker import Broker, DeadLetter
from backburner.testing.broker.acts import (
    PATIENCE,
    SECONDS,
    Connect,
    WithBrokers,
    comes_true,
    finish,
    nothing_comes,
    pause,
    recovered,
    take,
)
from backburner.testing.broker.hooks import Server

Call = Callable[[Broker, str], Awaitable[object]]
CALLS: Mapping[str, Call] = {
    "ping": lambda broker, _: broker.ping(),
    "publish": lambda broker, queue: broker.publish({queue: 1}),
    "depths": lambda broker, queue: broker.depths([queue]),
    "publish_dead_letters": lambda broker, queue: broker.publish_dead_letters(
        queue, [DeadLetter("job_1", b"{}")]
    ),
    "receive": lambda broker, queue: broker.receive(queue, 1),
}
ASKED = [name for name in CALLS if name != "receive"]
"""The calls that fail at once; `receive` cannot know that there will be no answer."""


class RecoveryConformance(WithBrokers):
    """`BrokerUnavailable` within seconds, and normal operation once it is back."""

    async def test_what_a_dead_receiver_held_comes_again(
        self, connect: Connect, server: Server, queue: str
    ) -> None:
        dead, other = await connect(), await connect()
        await dead.publish({queue: 4})
        taken = await take(dead, queue, 3)
        await dead.acknowledge(queue, taken[:1])
        await pause()
        await server.kill(dead)

        async def finish_three() -> None:
            assert 3 == len(await finish(other, queue, 3))

        await recovered(finish_three)
        assert await nothing_comes(other, queue)

    async def test_what_a_receiver_held_when_it_left_comes_again(
        self, connect: Connect, queue: str
    ) -> None:
        first, second = await connect(), await connect()
        await first.publish({queue: 3})
        await take(first, queue, 2)
        await first.close()

        assert 3 == len(await finish(second, queue, 3))

    async def test_a_closed_broker_may_be_closed_again(self, server: Server) -> None:
        broker = server.broker()
        await broker.open()
        await broker.close()
        await broker.close()

    async def test_what_was_published_outlives_a_cut(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        await broker.publish({queue: 3})
        await server.cut()

        async def finish_three() -> None:
            taken = await finish(broker, queue, 3)
            assert [WORK_AVAILABLE] * 3 == [message.body for message in taken]

        await recovered(finish_three)

    async def test_after_a_cut_all_that_is_not_forgotten_comes_again(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        await broker.publish({queue: 5})
        taken = await take(broker, queue, 3)
        await server.cut()
        with suppress(BrokerUnavailable):
            await broker.acknowledge(queue, taken)

        async def is_empty() -> bool:
            with suppress(BrokerUnavailable, TimeoutError):
                async with asyncio.timeout(0.5):
                    messages = await broker.receive(queue, 9)
                await broker.acknowledge(queue, messages)
            with suppress(BrokerUnavailable):
                return not any((await broker.depths([queue])).values())
            return False

        assert await comes_true(is_empty)

    async def test_whoever_waits_when_it_is_cut_is_told_or_served(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        waiting = asyncio.create_task(broker.receive(queue, 5))
        await pause(0.1)
        await server.cut()
        await recovered(lambda: broker.publish({queue: 1}))
        try:
            async with asyncio.timeout(SECONDS):
                taken = list(await waiting)
        except BrokerUnavailable:
            taken = await take(broker, queue, 1)
        await broker.acknowledge(queue, taken)

        assert taken

    async def test_what_was_confirmed_is_there_however_often_it_is_cut(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        confirmed, tried = 0, 0
        for _ in range(20):
            publishing = asyncio.create_task(broker.publish({queue: 10}))
            await pause(0.001)
            await server.cut()
            tried += 10
            with suppress(BrokerUnavailable):
                await publishing
                confirmed += 10
        await recovered(lambda: broker.publish({queue: 1}))
        received = 0

        async def drain() -> None:
            nonlocal received
            while any((await broker.depths([queue])).values()):
                messages = await broker.receive(queue, 500)
                await broker.acknowledge(queue, messages)
                received += len(messages)

        async with asyncio.timeout(PATIENCE):
            await recovered(drain)

        assert received > confirmed, "a confirmed message was lost"
        # An interrupted publish may have succeeded, and is repeated.
        assert received <= 2 * tried + 1

    @pytest.mark.parametrize("name", CALLS)
    async def test_every_call_says_that_the_broker_is_gone_and_works_when_it_is_back(
        self, broker: Broker, server: Server, queue: str, name: str
    ) -> None:
        await broker.publish({queue: 1})
        await server.stop()
        await self._is_told(server, lambda: CALLS[name](broker, queue))

    @pytest.mark.parametrize("name", ASKED)
    async def test_a_broker_that_does_not_answer_is_gone_too(
        self, broker: Broker, server: Server, queue: str, name: str
    ) -> None:
        await broker.publish({queue: 1})
        await server.freeze()
        await self._is_told(server, lambda: CALLS[name](broker, queue))

    async def _is_told(
        self, server: Server, call: Callable[[], Awaitable[object]]
    ) -> None:
        with pytest.raises(BrokerUnavailable):
            async with asyncio.timeout(SECONDS):
                await call()
        await server.start()
        await recovered(call)

    async def test_who_waits_for_messages_is_told_that_the_broker_went(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        waiting = asyncio.create_task(broker.receive(queue, 5))
        await pause(0.1)
        await server.stop()
        with pytest.raises(BrokerUnavailable):
            async with asyncio.timeout(SECONDS):
                await waiting
        await server.start()
        await recovered(lambda: broker.publish({queue: 1}))

        async def finish_one() -> None:
            await finish(broker, queue, 1)

        await recovered(finish_one)

    async def test_one_that_is_not_there_cannot_be_opened(self, server: Server) -> None:
        broker = server.broker()
        await server.stop()
        with pytest.raises(BrokerUnavailable):
            async with asyncio.timeout(SECONDS):
                await broker.open()
        await broker.close()

    async def test_leaving_does_not_wait_for_a_broker_that_is_gone(
        self, connect: Connect, server: Server, queue: str
    ) -> None:
        broker = await connect()
        await broker.publish({queue: 2})
        await take(broker, queue, 1)
        await server.freeze()
        async with asyncio.timeout(PATIENCE):
            await broker.close()
