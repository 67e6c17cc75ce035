"""SQS keeps the promises of a broker; moto plays its part."""

import asyncio
import secrets
from datetime import timedelta
from urllib.parse import urlsplit

import boto3
import pytest

from backburner.brokers.sqs import SqsBroker
from backburner.brokers.sqs_address import Address
from backburner.domain.errors import ConfigurationError
from backburner.ports.broker import DEAD, DeadLetter
from backburner.testing.broker import BrokerConformance, Proxied
from backburner.testing.broker.acts import finish, nothing_comes, take

HIDDEN_SECONDS = 8


class SqsServer(Proxied):
    """A server that speaks like SQS, seen from outside."""

    def __init__(self, url, client, monkeypatch):
        self._monkeypatch = monkeypatch
        self.address = Address.read(url)
        endpoint = urlsplit(self.address.endpoint)
        super().__init__(endpoint.hostname, endpoint.port)
        self.client = client

    def broker(self):
        return SqsBroker.from_url(
            f"sqs://test:test@{self.address.region}?wait=1&visibility={HIDDEN_SECONDS}"
            f"&endpoint=http://127.0.0.1:{self.port}"
        )

    async def freeze(self):
        self._monkeypatch.setattr("backburner.brokers.sqs.ANSWER_SECONDS", 4.0)
        await super().freeze()

    async def put(self, queue, body, *, name=""):
        named = {"id": {"DataType": "String", "StringValue": name}} if name else {}
        url = await self.url_of(queue)
        self.client.send_message(
            QueueUrl=url, MessageBody=body.decode(), MessageAttributes=named
        )

    async def dead_letters(self, queue):
        url, found = await self.url_of(queue, DEAD), []
        while told := await self._read(url):
            found += told
        return [
            DeadLetter(m["MessageAttributes"]["id"]["StringValue"], m["Body"].encode())
            for m in found
        ]

    async def _read(self, url):
        answer = self.client.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        return answer.get("Messages")

    async def kept_for(self, queue):
        answer = self.client.get_queue_attributes(
            QueueUrl=await self.url_of(queue, DEAD), AttributeNames=["All"]
        )
        return timedelta(seconds=int(answer["Attributes"]["MessageRetentionPeriod"]))

    async def url_of(self, queue, ending=""):
        name = self.address.name_of(queue) + ending
        return self.client.get_queue_url(QueueName=name)["QueueUrl"]

    async def kill(self, broker):
        for reading in broker._readings.values():
            if reading._request:
                reading._request.cancel()
        broker._readings.clear()
        broker._held.clear()


@pytest.fixture(scope="module")
def client(sqs_url):
    address = Address.read(sqs_url)
    client = boto3.client(
        "sqs",
        region_name=address.region,
        endpoint_url=address.endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - moto's
    )
    yield client
    client.close()


class TestSqsBroker(BrokerConformance):
    many = 60

    @pytest.fixture
    async def server(self, sqs_url, client, monkeypatch):
        # The one process that plays SQS serves all tests, and may be slow.
        monkeypatch.setattr("backburner.brokers.sqs.ANSWER_SECONDS", 30.0)
        server = SqsServer(sqs_url, client, monkeypatch)
        await server.start()
        yield server
        await server.stop()

    @pytest.fixture
    def a_queue(self, sqs_url, client):
        names = []

        def name_queue(word):
            names.append(f"{word}-{secrets.token_hex(4)}")
            return names[-1]

        yield name_queue
        address = Address.read(sqs_url)
        for name in map(address.name_of, names):
            found = client.list_queues(QueueNamePrefix=name)
            for url in found.get("QueueUrls", ()):
                client.delete_queue(QueueUrl=url)

    async def test_each_message_goes_to_one_receiver(self, connect, queue):
        """But for a few: SQS promises each once or more."""
        one, other = await connect(), await connect()
        await one.publish({queue: 60})
        taken = await asyncio.gather(take(one, queue, 25), take(other, queue, 25))

        messages = [message for some in taken for message in some]
        assert len(messages) - 5 <= len({message.handle for message in messages})

    async def test_a_queue_has_the_name_that_the_user_gave_it(
        self, broker, client, queue
    ):
        await broker.publish({queue: 1})
        told = client.list_queues(QueueNamePrefix=queue)

        names = {url.rpartition("/")[2] for url in told["QueueUrls"]}
        assert {queue, queue + DEAD} == names

    async def test_a_queue_that_was_deleted_is_made_again(
        self, broker, server, client, queue
    ):
        await broker.publish({queue: 1})
        client.delete_queue(QueueUrl=await server.url_of(queue))
        await broker.publish({queue: 2})

        assert 2 == len(await finish(broker, queue, 2))

    async def test_more_than_ten_are_received_at_once(self, broker, queue):
        await broker.publish({queue: 35})

        taken = await broker.receive(queue, 30)
        assert 10 < len(taken) <= 30

    async def test_a_message_without_a_name_has_the_one_sqs_gave_it(
        self, broker, server, queue
    ):
        await broker.publish({queue: 1})
        await finish(broker, queue, 1)
        await server.put(queue, b"{}")
        [first] = await take(broker, queue, 1)
        await broker.give_back(queue, [first])
        [again] = await finish(broker, queue, 1)

        assert first.id
        assert first.id == again.id, "given back, it is the same message"

    async def test_letters_are_many_and_large(self, broker, server, queue):
        letters = [DeadLetter(f"job_{n:02}", b"%d" % n * 90_000) for n in range(12)]
        await broker.publish_dead_letters(queue, letters)

        assert letters == sorted(await server.dead_letters(queue))

    async def test_what_sqs_does_not_take_is_replaced_in_a_letter(
        self, broker, server, queue
    ):
        await broker.publish_dead_letters(
            queue, [DeadLetter("job_1", b'"\x00\xff\xef\xbf\xbf"')]
        )

        assert [DeadLetter("job_1", '"\ufffd\ufffd\ufffd"'.encode())] == (
            await server.dead_letters(queue)
        )

    async def test_what_was_not_acknowledged_in_time_comes_again(self, connect, queue):
        slow, other = await connect(), await connect()
        await slow.publish({queue: 1})
        await take(slow, queue, 1)

        assert await nothing_comes(other, queue)
        assert 1 == len(await finish(other, queue, 1))


@pytest.mark.parametrize(
    ("queue", "called"),
    [
        ("ai-capability-jobs", "ai-capability-jobs"),
        ("under_score", "under_score"),
        ("ai.jobs", "ai-jobs-"),
        ("größer", "gr--er-"),
        ("x" * 77, "x" * 55 + "-"),
        ("jobs-0123456789abcdef0123", "jobs-0123456789abcdef0123-"),
    ],
)
def test_a_name_is_kept_where_sqs_allows_it(queue, called):
    name = Address("eu-central-1").name_of(queue)

    assert name.startswith(called)
    assert (name == called) == (not called.endswith("-"))
    assert len(name + DEAD) <= 80


def test_names_that_look_alike_are_kept_apart():
    address = Address("eu-central-1", prefix="house_")
    alike = ["ai.jobs", "ai jobs", "ai-jobs", "x" * 90, "x" * 91]
    alike += [address.name_of(name).removeprefix("house_") for name in alike]

    assert len({*alike}) == len({address.name_of(name) for name in alike})


def test_a_url_says_all_there_is_to_say():
    address = Address.read(
        "sqs://k%2Fey:se%40cret@eu-west-1?endpoint=http://127.0.0.1:5000"
        "&prefix=house_&visibility=60&wait=20"
    )

    assert address == Address(
        *("eu-west-1", "http://127.0.0.1:5000", "house_", 60, 20, "k/ey", "se@cret")
    )


@pytest.mark.parametrize(
    "url",
    [
        "sqs://",
        "sqs://eu-west-1?patience=3",
        "sqs://eu-west-1?wait=long",
        "sqs://eu-west-1?wait=0",
        "sqs://eu-west-1?visibility=50000",
        "sqs://eu-west-1?prefix=a.b",
    ],
)
def test_a_url_that_says_nothing_is_refused_with_its_setting(url):
    with pytest.raises(ConfigurationError, match="BACKBURNER_TRANSPORT"):
        SqsBroker.from_url(url)
