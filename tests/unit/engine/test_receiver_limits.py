"""No receiver takes more than its share, and a silent one is left alone."""

import asyncio
from datetime import timedelta

import pytest

from backburner.domain.jobs.job import Owner
from backburner.domain.jobs.outcome import Failed, Snooze
from backburner.domain.webhooks.webhook import Endpoint
from backburner.engine.webhooks import receiver_limits as module
from backburner.engine.webhooks.receiver_limits import AT_ONCE, SHARE, ReceiverLimits
from backburner.ports.egress import Answer, Silence
from backburner.testing.doubles import FrozenClock, SeededDice
from backburner.testing.samples import ANN, NOON

SLOTS = 40
ROOM = SLOTS // 2
YES = Answer(200, {})
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
PATIENCE = 180.0


def an_endpoint(number=1, owner=ANN, host="example.com"):
    return Endpoint(f"ep_{number}", owner, f"https://{host}/{number}", NOON)


class Calls:
    """Calls that go on until they are told what they come to."""

    def __init__(self):
        self.begun = []

    async def __call__(self):
        call = asyncio.get_running_loop().create_future()
        self.begun.append(call)
        return await call

    def end(self, said):
        for call in self.begun:
            if not call.done():
                call.set_result(said)

    @property
    def running(self):
        return len([call for call in self.begun if not call.done()])


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def receiver_limits(clock):
    return ReceiverLimits(clock, SeededDice(), slots=SLOTS)


@pytest.fixture
def calls():
    return Calls()


async def turns():
    """Let every task go on to where it has to wait."""
    for _ in range(20):
        await asyncio.wait({asyncio.create_task(asyncio.Event().wait())}, timeout=0)


async def says(receiver_limits, said, endpoint=None):
    async def call():
        return said

    return await receiver_limits.call(endpoint or an_endpoint(), call)


async def stop(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def start(receiver_limits, calls, count, endpoint=None):
    return [
        asyncio.create_task(receiver_limits.call(endpoint or an_endpoint(), calls))
        for _ in range(count)
    ]


async def test_a_receiver_has_four_calls_at_once(receiver_limits, calls):
    tasks = start(receiver_limits, calls, 50)
    await turns()

    assert AT_ONCE == calls.running == 4
    held = [task for task in tasks if not task.done()]
    assert AT_ONCE + ROOM == len(held), "so many slots one receiver can hold"
    turned_away = [task.result() for task in tasks if task.done()]
    assert all(isinstance(answer, Snooze) for answer in turned_away)
    assert all(SECOND <= answer.delay <= 5 * SECOND for answer in turned_away)
    assert 1 < len({answer.delay for answer in turned_away}), "all come back at once"
    await stop(tasks)


async def test_those_in_the_room_are_called_when_a_call_ends(receiver_limits, calls):
    tasks = start(receiver_limits, calls, 3 * AT_ONCE)
    for _ in range(3):
        await turns()
        assert AT_ONCE == calls.running
        calls.end(YES)

    assert [YES] * len(tasks) == await asyncio.gather(*tasks)


async def test_the_room_is_for_all_receivers_together(receiver_limits, calls):
    tasks = [
        task
        for number in range(5)
        for task in start(
            receiver_limits, calls, 20, an_endpoint(number, host=f"h{number}")
        )
    ]
    await turns()

    held = [task for task in tasks if not task.done()]
    assert 5 * AT_ONCE + ROOM == len(held)
    await stop(tasks)


async def test_a_place_is_free_for_the_next_when_nobody_took_it(receiver_limits, calls):
    tasks = start(receiver_limits, calls, AT_ONCE + ROOM)
    await turns()
    await stop(tasks)

    again = start(receiver_limits, calls, AT_ONCE + ROOM)
    await turns()
    assert not any(task.done() for task in again)
    await stop(again)


async def test_nobody_waits_in_a_slot_for_a_receiver_that_is_not_quick(
    receiver_limits, calls, clock
):
    running = start(receiver_limits, calls, AT_ONCE)
    await turns()
    clock.advance(SECOND)

    await turns()
    late = start(receiver_limits, calls, 1)
    await turns()

    assert late[0].done()
    assert isinstance(late[0].result(), Snooze)
    await stop(running)


@pytest.mark.parametrize(
    ("slots", "at_once"), [(1, 1), (8, 1), (16, 2), (31, 3), (32, 4), (10_000, 4)]
)
async def test_a_worker_with_few_slots_gives_fewer_of_them(
    clock, calls, slots, at_once
):
    receiver_limits = ReceiverLimits(clock, SeededDice(), slots=slots)
    tasks = start(receiver_limits, calls, 9)
    await turns()

    assert at_once == calls.running
    await stop(tasks)


async def test_those_in_the_room_do_not_wait_for_long(
    receiver_limits, calls, monkeypatch
):
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.01)
    running = start(receiver_limits, calls, AT_ONCE)
    await turns()

    assert isinstance(await receiver_limits.call(an_endpoint(), calls), Snooze)
    assert AT_ONCE == calls.running
    calls.end(YES)
    await asyncio.gather(*running)


async def test_other_receivers_are_not_concerned(receiver_limits, calls):
    held = start(receiver_limits, calls, AT_ONCE)
    await turns()

    assert YES == await says(receiver_limits, YES, an_endpoint(2))
    calls.end(YES)
    await asyncio.gather(*held)


async def test_many_urls_of_one_host_are_one_tenants_share(receiver_limits, calls):
    tasks = [
        task
        for n in range(50)
        for task in start(receiver_limits, calls, 1, an_endpoint(n))
    ]
    await turns()

    assert SHARE * AT_ONCE == calls.running
    assert YES == await says(receiver_limits, YES, an_endpoint(1, host="other.example"))
    assert YES == await says(
        receiver_limits, YES, an_endpoint(1, owner=Owner("b", "b"))
    )
    calls.end(YES)
    await asyncio.gather(*tasks)
    assert YES == await says(receiver_limits, YES, an_endpoint(99))


@pytest.mark.parametrize("silence", [Silence.TIMED_OUT, Silence.REFUSED])
async def test_a_receiver_that_kept_us_waiting_rests_and_then_is_tried_by_one(
    receiver_limits, clock, calls, silence
):
    await says(receiver_limits, silence)
    resting = await says(receiver_limits, YES)
    clock.advance(5 * SECOND)
    probing = start(receiver_limits, calls, 3)
    await turns()

    assert 6 * SECOND <= resting.delay <= 10 * SECOND
    assert 1 == calls.running
    calls.end(YES)
    assert [YES] == [a for a in await asyncio.gather(*probing) if a == YES]
    again = start(receiver_limits, calls, 3)
    await turns()
    assert 3 == calls.running, "it answered, and all may call again"
    await stop(again)


@pytest.mark.parametrize("silence", [Silence.CUT, Silence.UNTRUSTED])
async def test_a_receiver_that_fails_quickly_need_not_rest(receiver_limits, silence):
    await says(receiver_limits, silence)

    assert YES == await says(receiver_limits, YES)


async def test_rests_grow_to_a_minute_while_it_is_silent(receiver_limits, clock):
    await says(receiver_limits, Silence.TIMED_OUT)
    rests = []
    for _ in range(6):
        rests.append(0)
        while await says(receiver_limits, Silence.TIMED_OUT) is not Silence.TIMED_OUT:
            clock.advance(SECOND)
            rests[-1] += 1

    assert [5, 10, 20, 40, 60, 60] == rests


async def test_calls_that_fall_silent_together_count_once(
    receiver_limits, calls, clock
):
    tasks = start(receiver_limits, calls, AT_ONCE)
    await turns()
    clock.advance(15 * SECOND)
    calls.end(Silence.TIMED_OUT)
    await asyncio.gather(*tasks)
    clock.advance(5 * SECOND)

    assert YES == await says(receiver_limits, YES)


async def test_those_in_the_room_are_sent_away_when_it_falls_silent(
    receiver_limits, calls, clock
):
    tasks = start(receiver_limits, calls, AT_ONCE + 2)
    await turns()
    clock.advance(15 * SECOND)
    calls.end(Silence.TIMED_OUT)

    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*tasks)
    assert 2 == len([answer for answer in answers if isinstance(answer, Snooze)])
    assert AT_ONCE == len(calls.begun)


async def test_after_ten_minutes_of_silence_waiting_costs_attempts(
    receiver_limits, clock
):
    for _ in range(10):
        await says(receiver_limits, Silence.TIMED_OUT)
        clock.advance(MINUTE)
    await says(receiver_limits, Silence.TIMED_OUT)
    failed = await says(receiver_limits, YES)
    clock.advance(MINUTE)
    back = await says(receiver_limits, YES)

    assert isinstance(failed, Failed)
    assert ("WEBHOOK_SILENT", True, None) == (
        failed.code,
        failed.retryable,
        failed.retry_after,
    )
    assert YES == back
    assert YES == await says(receiver_limits, YES)
    await says(receiver_limits, Silence.TIMED_OUT)
    assert isinstance(await says(receiver_limits, YES), Snooze), (
        "it was back in between"
    )


async def test_a_crowd_comes_back_as_slowly_as_its_receiver_works(
    receiver_limits, calls, clock
):
    slow = start(receiver_limits, calls, 1)
    await turns()
    clock.advance(12 * SECOND)
    calls.end(YES)
    await asyncio.gather(*slow)
    held = start(receiver_limits, calls, AT_ONCE)
    await turns()
    clock.advance(SECOND)

    async with asyncio.timeout(PATIENCE):
        crowd = await asyncio.gather(*start(receiver_limits, calls, 200))
    delays = [answer.delay for answer in crowd]

    assert delays[0] < 6 * SECOND
    assert 60 * SECOND < delays[-1] <= 65 * SECOND
    await stop(held)


async def test_a_worker_forgets_receivers_that_it_has_nothing_to_do_with(
    receiver_limits, clock, monkeypatch
):
    monkeypatch.setattr(receiver_limits, "_many", 3)
    monkeypatch.setattr(module, "_FEW", 3)
    await says(receiver_limits, Silence.TIMED_OUT, an_endpoint(0))
    clock.advance(MINUTE)
    for number in range(1, 100):
        await says(receiver_limits, YES, an_endpoint(number))
        assert (number < 3) or (
            an_endpoint(0).id in {k[0] for k in receiver_limits._known}
        )
    clock.advance(2 * MINUTE)
    for number in range(100, 110):
        await says(receiver_limits, YES, an_endpoint(number))

    assert 6 >= len(receiver_limits._known)
    assert not receiver_limits._calls
