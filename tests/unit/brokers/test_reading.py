"""Nothing is lost by who gives up waiting, at whatever moment."""

import asyncio
from contextlib import suppress

import pytest

from backburner.brokers.reading import Reading
from backburner.domain.errors import BrokerUnavailable
from backburner.ports.broker import BrokerMessage


class Slow:
    """A broker that answers when a test tells it to."""

    def __init__(self):
        self.asked = []
        self.returned = []
        self._answers = asyncio.Queue()
        self.reading = Reading("jobs", self._read, self._give_back)

    def answer(self, *numbers):
        self._answers.put_nowait([BrokerMessage(b"", number) for number in numbers])

    async def _read(self, _queue, limit):
        self.asked.append(limit)
        return await self._answers.get()

    async def _give_back(self, _queue, messages):
        self.returned += [message.handle for message in messages]

    def receive(self, limit):
        return asyncio.create_task(self.reading.receive(limit))


@pytest.fixture
def slow():
    return Slow()


async def turn():
    """Let everybody else have a turn."""
    had = asyncio.Event()
    asyncio.get_running_loop().call_soon(had.set)
    await had.wait()


async def turns():
    """Let everybody else go as far as they get."""
    for _ in range(9):
        await turn()


def numbers(messages):
    return [message.handle for message in messages]


async def given_up(waiting):
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    assert waiting.cancelled()


async def test_an_empty_answer_is_asked_again(slow):
    waiting = slow.receive(5)
    slow.answer()
    slow.answer(1)

    assert [1] == numbers(await waiting)
    assert [5, 5] == slow.asked


async def test_what_comes_after_one_gave_up_is_given_back(slow):
    waiting = slow.receive(5)
    await turns()
    await given_up(waiting)
    slow.answer(1, 2)
    await turns()

    assert [1, 2] == slow.returned


async def test_the_next_who_asks_gets_the_answer_and_no_more_than_asked_for(slow):
    first = slow.receive(5)
    await turns()
    await given_up(first)
    second = slow.receive(2)
    slow.answer(1, 2, 3)

    assert [1, 2] == numbers(await second)
    await turns()
    assert [3] == slow.returned
    assert [5] == slow.asked, "the first question was still under way"


async def test_giving_up_at_the_moment_of_the_answer_loses_nothing(slow):
    waiting = slow.receive(5)
    await turns()
    slow.answer(1)
    while not slow.reading._request.done():
        await turn()
    await given_up(waiting)
    await turns()

    assert [1] == slow.returned


async def test_who_waits_when_it_ends_is_told(slow):
    waiting = slow.receive(5)
    await turns()
    await slow.reading.finish(0)

    with pytest.raises(BrokerUnavailable):
        await waiting


async def test_the_end_waits_for_what_is_given_back(slow):
    waiting = slow.receive(5)
    await turns()
    await given_up(waiting)
    ending = asyncio.create_task(slow.reading.finish(9))
    await turns()
    slow.answer(1)
    await ending

    assert [1] == slow.returned
