"""Timers: whatever is not discarded in its time is called back, once, in order."""

import asyncio

import pytest

from backburner.engine.run.timeouts import MOST_STALE, Timeouts

LONG = 3600.0


@pytest.fixture
async def timers(monkeypatch):
    """The timers that the event loop was asked for and that were not cancelled."""
    loop, made = asyncio.get_running_loop(), []
    call_at = loop.call_at

    def noting(when, *arguments, **options):
        made.append(call_at(when, *arguments, **options))
        return made[-1]

    monkeypatch.setattr(loop, "call_at", noting)
    return lambda: [timer for timer in made if not timer.cancelled()]


async def test_items_expire_in_the_order_in_which_they_are_due():
    expired, done = [], asyncio.Event()

    def note(item):
        expired.append(item)
        if item == "last":
            done.set()

    timeouts = Timeouts(note)
    for item, seconds in [
        ("last", 0.06),
        ("first", 0.0),
        ("out", 0.01),
        ("next", 0.03),
    ]:
        timeouts.add(item, seconds)
    timeouts.discard("out")
    async with asyncio.timeout(60):
        await done.wait()
    timeouts.discard("last")

    assert ["first", "next", "last"] == expired


async def test_thousands_of_lengths_of_time_have_one_timer(timers):
    timeouts = Timeouts(print)
    for number in range(5_000):
        timeouts.add(number, LONG + number / 7)

    assert 1 == len(timers())


async def test_what_ended_in_time_leaves_nothing_behind(timers):
    timeouts = Timeouts(print)
    timeouts.add("lasting", LONG)
    for number in range(5_000):
        timeouts.add(number, LONG + number / 7)
        timeouts.discard(number)

    assert 1 == len(timers())
    assert len(timeouts._heap) <= MOST_STALE + 3
    kept = [item for _, _, item in timeouts._heap if item is not None]
    assert ["lasting"] == [*timeouts._place] == kept


async def test_an_item_that_is_due_sooner_is_not_kept_waiting():
    expired = asyncio.Event()
    timeouts = Timeouts(lambda _item: expired.set())
    timeouts.add("late", LONG)
    timeouts.add("soon", 0.0)

    async with asyncio.timeout(60):
        await expired.wait()
