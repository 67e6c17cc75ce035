"""Tests of delivery: at least once, to one receiver, until acknowledged."""

import asyncio
from contextlib import suppress

import pytest

from backburner.domain.message import WORK_AVAILABLE
from backburner.ports.broker import Broker, BrokerMessage
from backburner.ports.finding import Status
from backburner.testing.broker.acts import (
    PATIENCE,
    SECONDS,
    Connect,
    NameQueue,
    WithBrokers,
    finish,
    has_depths,
    nothing_comes,
    pause,
    take,
)


class HandingOutConformance(WithBrokers):
    """`publish`, `receive`, `acknowledge`, `give_back`, `depths`."""

    many: int = 1_200
    """The size of a large number of messages; less for a slow emulator."""

    async def test_a_broker_that_is_there_answers(self, broker: Broker) -> None:
        await broker.ping()

    async def test_it_has_something_to_say_of_itself_and_nothing_is_wrong(
        self, broker: Broker
    ) -> None:
        findings = [finding async for finding in broker.examine()]

        assert findings
        assert Status.FAIL not in {finding.status for finding in findings}

    async def test_what_is_published_is_received(
        self, broker: Broker, queue: str
    ) -> None:
        await broker.publish({queue: 3})
        taken = await finish(broker, queue, 3)

        assert [WORK_AVAILABLE] * 3 == [message.body for message in taken]
        assert await nothing_comes(broker, queue), "three were published, a fourth came"

    async def test_who_waits_is_told_at_once(self, broker: Broker, queue: str) -> None:
        waiting = asyncio.create_task(broker.receive(queue, 5))
        await pause()
        await broker.publish({queue: 1})
        async with asyncio.timeout(SECONDS):
            [message] = await waiting
        await broker.acknowledge(queue, [message])

        assert WORK_AVAILABLE == message.body

    @pytest.mark.parametrize("counts", [{}, {"none": 0}])
    async def test_nothing_may_be_published(
        self, broker: Broker, a_queue: NameQueue, counts: dict[str, int]
    ) -> None:
        named = {a_queue(name): count for name, count in counts.items()}
        await broker.publish(named)

        assert await has_depths(broker, named)

    async def test_many_are_published_to_several_queues_at_once(
        self, broker: Broker, a_queue: NameQueue
    ) -> None:
        counts = {a_queue("many"): self.many, a_queue("few"): 3}
        await broker.publish(counts)

        for queue, count in counts.items():
            assert count == len(await finish(broker, queue, count))
            assert await nothing_comes(broker, queue)

    async def test_many_may_publish_at_once(self, broker: Broker, queue: str) -> None:
        await asyncio.gather(*[broker.publish({queue: 5}) for _ in range(20)])

        assert 100 == len(await finish(broker, queue, 100))
        assert await nothing_comes(broker, queue)

    async def test_each_message_goes_to_one_receiver(
        self, connect: Connect, queue: str
    ) -> None:
        brokers = [await connect(), await connect()]
        received: list[BrokerMessage] = []
        all_there = asyncio.Event()

        async def drain(broker: Broker) -> None:
            while True:
                messages = await broker.receive(queue, 7)
                await broker.acknowledge(queue, messages)
                received.extend(messages)
                if len(received) >= 200:
                    all_there.set()

        await brokers[0].publish({queue: 200})
        tasks = [asyncio.create_task(drain(broker)) for broker in brokers]
        async with asyncio.timeout(PATIENCE):
            await all_there.wait()
        await pause()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert 200 == len(received)

    async def test_no_more_are_returned_than_asked_for(
        self, broker: Broker, queue: str
    ) -> None:
        await broker.publish({queue: 10})
        first = await broker.receive(queue, 3)
        second = await broker.receive(queue, 3)

        assert 1 <= len(first) <= 3
        assert 1 <= len(second) <= 3

    async def test_receivers_of_two_queues_do_not_wait_for_each_other(
        self, broker: Broker, a_queue: NameQueue
    ) -> None:
        quiet, busy = a_queue("quiet"), a_queue("busy")
        waiting = asyncio.create_task(broker.receive(quiet, 5))
        await broker.publish({busy: 2})

        assert 2 == len(await finish(broker, busy, 2))
        assert not waiting.done()
        await broker.publish({quiet: 1})
        async with asyncio.timeout(SECONDS):
            await broker.acknowledge(quiet, await waiting)

    async def test_what_is_acknowledged_never_comes_again(
        self, connect: Connect, queue: str
    ) -> None:
        first, second = await connect(), await connect()
        await first.publish({queue: 5})
        taken = await take(first, queue, 5)
        await first.acknowledge(queue, [taken[0], taken[2], taken[4]])
        await first.close()

        assert 2 == len(await finish(second, queue, 2))
        assert await nothing_comes(second, queue)

    async def test_they_may_be_acknowledged_in_any_order(
        self, connect: Connect, queue: str
    ) -> None:
        first, second = await connect(), await connect()
        await first.publish({queue: 6})
        taken = await take(first, queue, 6)
        await first.acknowledge(queue, taken[3:5])
        await first.acknowledge(queue, [taken[1]])
        await first.acknowledge(queue, [taken[5], taken[0]])
        await first.close()

        assert 1 == len(await finish(second, queue, 1))
        assert await nothing_comes(second, queue)

    async def test_what_is_given_back_comes_again(
        self, connect: Connect, queue: str
    ) -> None:
        first, second = await connect(), await connect()
        await first.publish({queue: 3})
        taken = await take(first, queue, 3)
        await first.acknowledge(queue, taken[:1])
        await first.give_back(queue, taken[1:])

        assert 2 == len(await finish(second, queue, 2))
        assert await nothing_comes(second, queue)

    async def test_a_receiver_keeps_nothing_that_it_did_not_return(
        self, connect: Connect, queue: str
    ) -> None:
        busy, idle = await connect(), await connect()
        await busy.publish({queue: 20})
        taken = await busy.receive(queue, 1)

        assert 19 == len(await finish(idle, queue, 19))
        await busy.acknowledge(queue, taken)
        assert await has_depths(idle, {queue: 0})

    async def test_a_receiver_with_little_room_keeps_little(
        self, connect: Connect, queue: str
    ) -> None:
        slow, idle = await connect(), await connect()
        await slow.publish({queue: 200})
        kept = list(await slow.receive(queue, 100))

        async def take_slowly() -> None:
            while True:
                kept.extend(await slow.receive(queue, 1))
                await pause(0.2)

        slowly = asyncio.create_task(take_slowly())
        taken = 0
        async with asyncio.timeout(PATIENCE):
            while taken + len(kept) < 200:
                messages = await idle.receive(queue, 100)
                await idle.acknowledge(queue, messages)
                taken += len(messages)
        slowly.cancel()

        assert taken >= 50, "the slow one took more than it had returned"

    async def test_a_receiver_that_gives_up_loses_nothing(
        self, broker: Broker, queue: str
    ) -> None:
        taken: list[BrokerMessage] = []
        for _ in range(30):
            waiting = asyncio.create_task(broker.receive(queue, 5))
            await broker.publish({queue: 1})
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                taken += await waiting
        taken += await take(broker, queue, 30 - len(taken))
        await broker.acknowledge(queue, taken)

        assert await nothing_comes(broker, queue)
        assert await has_depths(broker, {queue: 0})

    async def test_depths_count_what_waits_and_what_is_handed_out(
        self, broker: Broker, a_queue: NameQueue
    ) -> None:
        queue, other = a_queue("one"), a_queue("other")
        await broker.publish({queue: 5, other: 2})

        assert await has_depths(broker, {queue: 5, other: 2})
        taken = await take(broker, queue, 2)
        assert await has_depths(broker, {queue: 5}), "two are in hand, three wait"
        await broker.acknowledge(queue, taken)
        assert await has_depths(broker, {queue: 3, other: 2})

    async def test_a_queue_that_nobody_used_has_no_depth(
        self, broker: Broker, a_queue: NameQueue
    ) -> None:
        used, unused = a_queue("used"), a_queue("unused")
        await broker.publish({used: 1})

        assert await has_depths(broker, {unused: 0, used: 1})
        assert {} == dict(await broker.depths([]))

    async def test_names_are_kept_apart_as_they_are(
        self, broker: Broker, a_queue: NameQueue
    ) -> None:
        words = ["ai-capability-jobs", "ai.capability.jobs", "ai_capability_jobs", "AI"]
        queues = {a_queue(word): n for n, word in enumerate(words, 1)}
        await broker.publish(queues)

        assert await has_depths(broker, queues)
        for queue, count in queues.items():
            assert count == len(await finish(broker, queue, count))
