import asyncio

import structlog

from backburner.engine import loop as loops
from backburner.engine.loop import Loop, supervised
from backburner.engine.seldom import Seldom


async def test_a_loop_ends_though_its_action_swallowed_the_cancellation():
    begun = asyncio.Event()

    async def action():
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return  # as a library's wait_for may

    loop = Loop("stubborn", action, every=3600.0)
    loop.start()
    await begun.wait()

    stopping = asyncio.create_task(loop.stop())
    done, _ = await asyncio.wait({stopping}, timeout=60)

    assert {stopping} == done


async def test_a_loop_that_was_stopped_can_be_started_again():
    calls = asyncio.Queue()

    async def action():
        calls.put_nowait("call")

    loop = Loop("again", action, every=3600.0)
    for _ in range(2):
        loop.start()
        await calls.get()
        loop.poke()
        await calls.get()
        await loop.stop()

    assert calls.empty()


async def test_the_first_call_may_have_to_wait_unless_it_is_wanted_sooner():
    calls = asyncio.Queue()

    async def action():
        calls.put_nowait("call")

    at_once = Loop("at once", action, every=3600.0)
    later = Loop("later", action, every=3600.0, after=3600.0)
    later.start()
    at_once.start()
    await calls.get()
    assert calls.empty(), "it would have been called first"
    later.poke()

    assert "call" == await calls.get()
    await at_once.stop()
    await later.stop()


async def test_work_that_raises_is_begun_again_until_it_returns(monkeypatch):
    monkeypatch.setattr(loops, "RESTART_SECONDS", 0.0)
    faults = [ValueError("once"), KeyError("twice")]

    async def work():
        if faults:
            raise faults.pop()

    await supervised("work", work)

    assert [] == faults


async def test_a_loop_that_fails_again_and_again_says_so_once():
    calls = asyncio.Queue()

    async def action():
        calls.put_nowait("call")
        raise OSError("again")

    loop = Loop("failing", action, every=0.0)
    with structlog.testing.capture_logs() as lines:
        loop.start()
        for _ in range(50):
            await calls.get()
        await loop.stop()

    assert [{"loop": "failing", "error_type": "OSError", "count": 1}] == [
        {key: line[key] for key in ("loop", "error_type", "count")} for line in lines
    ]


async def test_a_line_that_comes_again_says_how_many_were_left_out():
    written = []

    def write(event, count):
        written.append((event, count))

    lines = Seldom()
    for event in ("a", "a", "b", "a"):
        lines.write(write, event)
    lines._seconds = 0.0
    lines._next.clear()
    for _ in range(2):
        lines.write(write, "a")

    assert [("a", 1), ("b", 1), ("a", 3), ("a", 1)] == written
