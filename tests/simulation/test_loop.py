"""A loop whose time and order come from a seed."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from backburner.testing.simulation import loop as simulated
from backburner.testing.simulation.loop import Deadlock, Lane, Livelock, SeededLoop


@pytest.fixture
def loop() -> Iterator[SeededLoop]:
    seeded = SeededLoop(random.Random(1))
    yield seeded
    seeded.close()


async def wait(seconds: float) -> None:
    await asyncio.wait_for(asyncio.Event().wait(), seconds)


def test_time_passes_without_waiting(loop: SeededLoop) -> None:
    with pytest.raises(TimeoutError):
        loop.run_until_complete(wait(86_400.0))

    assert 86_400.0 == loop.time()


def test_a_lane_takes_its_steps_in_order(loop: SeededLoop) -> None:
    context = loop.add(Lane("one"))
    taken: list[int] = []

    for number in range(5):
        loop.call_soon(taken.append, number, context=context)
    loop.call_later(1, loop.stop)
    loop.run_forever()

    assert [0, 1, 2, 3, 4] == taken


def test_lanes_take_turns_by_lot(loop: SeededLoop) -> None:
    one, other = loop.add(Lane("one")), loop.add(Lane("other"))
    taken: list[str] = []

    for _ in range(5):
        loop.call_soon(taken.append, "one", context=one)
        loop.call_soon(taken.append, "other", context=other)
    loop.call_later(1, loop.stop)
    loop.run_forever()

    assert ["one", "other"] * 5 != taken
    assert ["one"] * 5 + ["other"] * 5 == sorted(taken)


def test_a_lane_that_was_held_goes_on_where_it_stood(loop: SeededLoop) -> None:
    lane = Lane("frozen")
    context = loop.add(lane)
    times: list[float] = []

    lane.is_held = True
    loop.call_later(1, lambda: times.append(loop.time()), context=context)
    loop.call_later(5, setattr, lane, "is_held", False)
    loop.call_later(9, loop.stop)
    loop.run_forever()

    assert [5.0] == times


def test_a_killed_lane_takes_no_step_any_more(loop: SeededLoop) -> None:
    lane = Lane("dead")
    context = loop.add(lane)
    taken: list[str] = []

    loop.call_soon(taken.append, "planned", context=context)
    loop.call_later(1, taken.append, "timed", context=context)
    lane.kill()
    loop.call_soon(taken.append, "late", context=context)
    loop.call_later(2, loop.stop)
    loop.run_forever()

    assert [] == taken


def test_nothing_left_to_wait_for_is_told(loop: SeededLoop) -> None:
    with pytest.raises(Deadlock):
        loop.run_until_complete(asyncio.Event().wait())


def test_being_busy_for_ever_is_told(
    loop: SeededLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated, "MANY", 100)

    def again() -> None:
        loop.call_soon(again)

    again()

    with pytest.raises(Livelock):
        loop.run_forever()


def test_what_escapes_from_a_callback_is_kept(loop: SeededLoop) -> None:
    loop.call_soon(int, "no number")
    loop.call_later(1, loop.stop)
    loop.run_forever()

    assert [ValueError] == [type(error) for error in loop.failures]
