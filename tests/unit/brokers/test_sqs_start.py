"""Opening SQS on a machine that is busy."""

import asyncio

import pytest

from backburner.brokers import sqs
from backburner.domain.errors import BrokerUnavailable


class Client:
    """Answers without waiting, after so many failures."""

    def __init__(self, failures=0):
        self.failures = failures

    async def get_queue_url(self, **_words):
        if self.failures:
            self.failures -= 1
            raise TimeoutError
        return {"QueueUrl": "http://127.0.0.1/ping"}


@pytest.fixture
def broker(monkeypatch):
    """A broker with no time at all for an answer that is waited for."""
    monkeypatch.setattr(sqs, "ANSWER_SECONDS", 0.0)
    return sqs.SqsBroker.from_url("sqs://test:test@us-east-1")


async def test_making_the_client_does_not_count_as_waiting_for_an_answer(broker):
    async def connect():
        loop = asyncio.get_running_loop()
        for _ in range(5):
            turn = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn
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
