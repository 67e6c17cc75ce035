"""Tests of dead letters: they are kept in a queue of their own for a week."""

from datetime import timedelta

from backburner.ports.broker import DEAD_DAYS, Broker, DeadLetter
from backburner.testing.broker.acts import (
    NameQueue,
    WithBrokers,
    finish,
    has_depths,
    nothing_comes,
)
from backburner.testing.broker.hooks import Server

DEAD_LETTERS = [
    DeadLetter("job_1", b'{"id":"job_1","error":{"code":"BOOM"}}'),
    DeadLetter("job_2", '{"id":"job_2","input":"größer"}'.encode()),
]


class DeadLetterConformance(WithBrokers):
    """`publish_dead_letters`."""

    async def test_letters_lie_among_the_dead_ones_with_name_and_body(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        await broker.publish_dead_letters(queue, DEAD_LETTERS)

        assert sorted(DEAD_LETTERS) == sorted(await server.dead_letters(queue))

    async def test_many_letters_are_buried_at_once(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        dead_letters = [DeadLetter(f"job_{n:03}", b'{"n":%d}' % n) for n in range(120)]
        await broker.publish_dead_letters(queue, dead_letters)

        assert dead_letters == sorted(await server.dead_letters(queue))

    async def test_each_queue_has_its_own(
        self, broker: Broker, server: Server, a_queue: NameQueue
    ) -> None:
        one, other = a_queue("one"), a_queue("other")
        await broker.publish_dead_letters(one, DEAD_LETTERS[:1])
        await broker.publish_dead_letters(other, DEAD_LETTERS[1:])

        assert DEAD_LETTERS[:1] == list(await server.dead_letters(one))
        assert DEAD_LETTERS[1:] == list(await server.dead_letters(other))

    async def test_no_receiver_gets_one(self, broker: Broker, queue: str) -> None:
        await broker.publish({queue: 1})
        await broker.publish_dead_letters(queue, DEAD_LETTERS)

        assert await has_depths(broker, {queue: 1})
        await finish(broker, queue, 1)
        assert await nothing_comes(broker, queue)

    async def test_nothing_may_be_buried(self, broker: Broker, queue: str) -> None:
        await broker.publish_dead_letters(queue, [])

    async def test_they_are_kept_for_a_week(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        await broker.publish_dead_letters(queue, DEAD_LETTERS)

        assert timedelta(days=DEAD_DAYS) == await server.kept_for(queue)

    async def test_one_that_is_put_back_is_received(
        self, broker: Broker, server: Server, queue: str
    ) -> None:
        await broker.publish({queue: 1})
        await finish(broker, queue, 1)
        await broker.publish_dead_letters(queue, DEAD_LETTERS)
        await server.put(queue, DEAD_LETTERS[0].body, name=DEAD_LETTERS[0].id)
        [message] = await finish(broker, queue, 1)

        assert DEAD_LETTERS[0] == DeadLetter(message.id, message.body)
