"""RabbitMQ keeps the promises of the broker port."""

import asyncio
import secrets
import ssl
import traceback
from datetime import timedelta

import aio_pika
import pytest
import trustme
import uvloop
from aiormq.exceptions import ChannelPreconditionFailed
from yarl import URL

from backburner.brokers.amqp import AmqpBroker, consumer
from backburner.brokers.amqp.publisher import Publisher
from backburner.domain.errors import BrokerUnavailable, ConfigurationError
from backburner.ports.broker import DEAD, DeadLetter
from backburner.testing.broker import BrokerConformance, Proxied
from backburner.testing.broker.acts import (
    comes_true,
    finish,
    has_depths,
    pause,
    recovered,
    take,
)


class RabbitServer(Proxied):
    """The server behind a proxy, and a connection of our own that passes it by."""

    def __init__(self, url):
        super().__init__(url.host, url.port)
        self._url = url

    @property
    def url(self):
        return self._url.with_host("127.0.0.1").with_port(self.port)

    def broker(self):
        return AmqpBroker.from_url(str(self.url))

    async def open(self):
        await self.start()
        self.connection = await aio_pika.connect(self._url)
        self._channel = await self.connection.channel()

    async def close(self):
        await self.connection.close()
        await self.stop()

    async def put(self, queue, body, *, name="", **more):
        message = aio_pika.Message(body, message_id=name or None, **more)
        await self._channel.default_exchange.publish(message, routing_key=queue)

    async def dead_letters(self, queue):
        dead = await self._channel.get_queue(f"{queue}{DEAD}")
        letters = []
        while (message := await dead.get(no_ack=True, fail=False)) is not None:
            letters.append(DeadLetter(message.message_id, message.body))
        return letters

    async def kept_for(self, queue):
        kind = {"x-queue-type": "quorum", "x-message-ttl": 1}
        refusal = await self.refusal(f"{queue}{DEAD}", durable=True, arguments=kind)
        told = refusal.partition("but current is '")[2]
        return timedelta(milliseconds=int(told.partition("'")[0]))

    async def refusal(self, queue, **guess):
        """Ask what a queue has by a wrong guess: the refusal names it."""
        with pytest.raises(ChannelPreconditionFailed) as refused:
            await self.declare(queue, **guess)
        return str(refused.value)

    async def declare(self, queue, **more):
        channel = await self.connection.channel()
        await channel.declare_queue(queue, **more)
        await channel.close()

    async def look_at(self, queue):
        declared = await self._channel.declare_queue(queue, passive=True)
        return declared.declaration_result

    async def kill(self, broker):  # noqa: ARG002 - all go, and the others come back
        await self.cut()

    async def delete(self, queue):
        await self._channel.queue_delete(queue)
        await self._channel.queue_delete(f"{queue}{DEAD}")


@pytest.fixture
async def server(rabbitmq_url):
    server = RabbitServer(URL(rabbitmq_url))
    await server.open()
    yield server
    await server.close()


@pytest.fixture
async def a_queue(server):
    names = []

    def name(word):
        names.append(f"test-{secrets.token_hex(4)}-{word}")
        return names[-1]

    yield name
    for queue in names:
        await server.delete(queue)


class TestAmqpBroker(BrokerConformance):
    async def test_queues_are_durable_and_replicated_where_they_can_be(
        self, broker, server, queue
    ):
        await broker.publish({queue: 1})

        for name in (queue, f"{queue}{DEAD}"):
            refusal = await server.refusal(name, durable=False)
            assert "'durable'" in refusal
            assert "current is 'true'" in refusal
            refusal = await server.refusal(name, durable=True)
            assert "'x-queue-type'" in refusal
            assert "'quorum'" in refusal

    async def test_a_queue_that_was_there_is_used_as_it_is(self, broker, server, queue):
        await server.declare(queue, durable=False, auto_delete=False)
        await broker.publish({queue: 2})

        assert 2 == len(await finish(broker, queue, 2))

    async def test_a_deleted_queue_is_made_again_to_publish(
        self, broker, server, queue
    ):
        await broker.publish({queue: 1})
        await server.delete(queue)
        await broker.publish({queue: 3})

        assert await has_depths(broker, {queue: 3})

    async def test_a_deleted_queue_is_made_again_for_whoever_waits(
        self, broker, server, queue, monkeypatch
    ):
        monkeypatch.setattr(consumer, "VAIN_LOOKS", 3)
        waiting = asyncio.create_task(take(broker, queue, 1))
        await pause(0.2)
        await server.delete(queue)
        await broker.publish({queue: 1})

        await broker.acknowledge(queue, await waiting)

    async def test_a_full_queue_takes_no_more_and_says_so(self, broker, server, queue):
        limits = {"x-max-length": 2, "x-overflow": "reject-publish"}
        await server.declare(queue, durable=True, arguments=limits)
        with pytest.raises(BrokerUnavailable, match="full"):
            await broker.publish({queue: 50})
        await finish(broker, queue, 2)
        await recovered(lambda: broker.publish({queue: 1}))

    @pytest.mark.parametrize(
        "body",
        [b"", bytes(range(256)), b"\xce" * 300_000],
        ids=["none", "any", "large"],
    )
    async def test_any_bytes_are_carried(self, broker, server, queue, body):
        await broker.publish({queue: 1})
        await finish(broker, queue, 1)
        await server.put(
            queue, body, name="m-\N{OCTOPUS}", headers={"n": [1, {"a": None}]}
        )
        [message] = await finish(broker, queue, 1)

        assert (body, "m-\N{OCTOPUS}") == (message.body, message.id)

    async def test_large_letters_are_buried(self, broker, server, queue):
        letter = DeadLetter("job_1", b"\xce" * 300_000)
        await broker.publish_dead_letters(queue, [letter])

        assert [letter] == await server.dead_letters(queue)

    async def test_who_receives_no_more_is_no_consumer_for_long(
        self, broker, server, queue
    ):
        await broker.publish({queue: 30})
        await broker.acknowledge(queue, await broker.receive(queue, 1))

        async def is_alone():
            declared = await server.look_at(queue)
            return (declared.consumer_count, declared.message_count) == (0, 29)

        assert await comes_true(is_alone)

    async def test_unconfirmed_messages_are_lost_where_confirmed_ones_are_not(
        self, broker, server, queue, monkeypatch
    ):
        async def send_and_hope(publisher, envelopes):
            publisher._sent += len(envelopes)
            publisher._wire.send(b"".join(envelopes))
            return set()

        await broker.publish({queue: 1})
        monkeypatch.setattr(Publisher, "send", send_and_hope)
        await server.freeze()
        await broker.publish({queue: 10})
        await server.cut()
        await server.start()
        monkeypatch.undo()

        async def has_one():
            assert {queue: 1} == await broker.depths([queue])

        await recovered(has_one)

    async def test_no_error_shows_the_password(self, server):
        secret = secrets.token_hex(8)
        url = server.url.with_password(secret)
        for wrong in (url, url.with_path("/nowhere"), url.with_port(1)):
            with pytest.raises(BrokerUnavailable) as told:
                await AmqpBroker.from_url(str(wrong)).open()
            assert secret not in "".join(traceback.format_exception(told.value))
        with pytest.raises(ConfigurationError, match="BACKBURNER_TRANSPORT") as told:
            AmqpBroker.from_url(f"amqp://guest:{secret}@host:port/")
        assert secret not in "".join(traceback.format_exception(told.value))

    async def test_it_speaks_tls(self, server, queue, tmp_path):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost").configure_cert(context)
        await server.stop()
        await server.start(ssl=context)
        url = server.url.with_scheme("amqps").with_host("localhost")
        named = url.update_query(cafile=str(tmp_path / "ca.pem"))
        trusting = AmqpBroker.from_url(str(named))
        await trusting.publish({queue: 2})
        taken = await finish(trusting, queue, 2)
        await trusting.close()
        distrusting = AmqpBroker.from_url(str(url))

        assert 2 == len(taken)
        with pytest.raises(BrokerUnavailable, match="certificate"):
            await distrusting.open()

    def test_it_works_on_uvloop(self, rabbitmq_url):
        queue = f"test-{secrets.token_hex(4)}-uv"

        async def work():
            broker = AmqpBroker.from_url(rabbitmq_url)
            await broker.open()
            await broker.publish({queue: 700})
            taken = await finish(broker, queue, 700)
            await broker.close()
            async with await aio_pika.connect(rabbitmq_url) as connection:
                channel = await connection.channel()
                await channel.queue_delete(queue)
                await channel.queue_delete(f"{queue}{DEAD}")
            return len(taken)

        assert 700 == uvloop.run(work())
