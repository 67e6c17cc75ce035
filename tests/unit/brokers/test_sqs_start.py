"""The first calls to SQS on a machine that is busy."""

import asyncio

import pytest

from backburner.brokers import sqs
from backburner.domain.errors import BrokerUnavailable


async def turns(count):
    """Let other tasks run so many times."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


class Client:
    """Answers without waiting, after so many failures."""

    def __init__(self, failures=0):
        self.failures = failures
        self.looked_up = []

    async def get_queue_url(self, **words):
        self.looked_up.append(words["QueueName"])
        if self.failures:
            self.failures -= 1
            raise TimeoutError
        return {"QueueUrl": "http://127.0.0.1/ping"}

    async def send_message_batch(self, **_words):
        return {}


class Remote(Client):
    """Answers after others had their turn."""

    async def get_queue_url(self, **words):
        await turns(1)
        return await super().get_queue_url(**words)


@pytest.fixture
def broker(monkeypatch):
    """A broker with no time at all for an answer that is waited for."""
    monkeypatch.setattr(sqs, "ANSWER_SECONDS", 0.0)
    return sqs.SqsBroker.from_url("sqs://test:test@us-east-1")


async def test_making_the_client_does_not_count_as_waiting_for_an_answer(broker):
    async def connect():
        await turns(5)
        broker._client = Client()

    broker._connect = connect

    await broker.open()


async def test_an_open_asks_again_before_it_gives_up(broker):
    broker._client = Client(failures=sqs.TRIES - 1)

    await broker.open()


async def test_an_open_gives_up_when_nobody_answers(broker):
    broker._client = Client(failures=sqs.TRIES)

    with pytest.raises(BrokerUnavailable, match="TimeoutError"):
        await broker.open()


async def test_calls_at_once_look_a_queue_up_once(broker, monkeypatch):
    monkeypatch.setattr(sqs, "ANSWER_SECONDS", 60.0)
    client = broker._client = Remote()
    await broker.publish({"jobs": 30 * sqs.TEN, "others": 1})

    assert ["jobs", "others"] == sorted(client.looked_up)


async def test_a_look_up_that_failed_is_tried_again(broker, monkeypatch):
    monkeypatch.setattr(sqs, "ANSWER_SECONDS", 60.0)
    client = broker._client = Remote(failures=1)
    with pytest.raises(BrokerUnavailable, match="TimeoutError"):
        await broker.publish({"jobs": 3 * sqs.TEN})
    await broker.publish({"jobs": 1})

    assert ["jobs", "jobs"] == client.looked_up
