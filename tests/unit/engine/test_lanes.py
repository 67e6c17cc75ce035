"""Permits that must not be lost, whatever becomes of who asked for them."""

import asyncio

import pytest

from backburner.domain.errors import StoreUnavailable, Throttled
from backburner.domain.lanes.permit import Permit, Wait
from backburner.domain.lanes.rate_limit_headers import SERVED
from backburner.engine.models.lanes import Call, Lanes
from backburner.ports.store.lanes import PermitReturn
from backburner.ports.store.workers import WorkerLost
from backburner.testing.doubles import FrozenClock, SeededDice


class Shaky:
    """A store that says what it is told to, one thing after the other."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.given = []
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def take_permit(self, _lane, _worker, ask):
        self.is_asked.set()
        await self.may_answer.wait()
        answer = self.answers.pop(0) if self.answers else Permit(ask.id, 1)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def give_permit(self, _lane, permit, hint, _ask, *, is_over=True):
        if self.answers:
            raise self.answers.pop(0)
        self.given.append((permit.id, hint, is_over))
        return PermitReturn()


def lanes(store):
    return Lanes(store, FrozenClock(), SeededDice(), lambda: "w_1", patience=1.0)


async def test_a_permit_comes_back_with_what_was_heard():
    store = Shaky()
    lane_gate = lanes(store)
    async with Call(lane_gate, "p/m") as call:
        call.hear(200)
    await lane_gate.close()

    [(_, hint, is_over)] = store.given
    assert (SERVED, True) == (hint, is_over)


async def test_a_permit_that_cannot_be_given_back_is_given_later():
    store = Shaky(Permit("p_1", 1), StoreUnavailable("away"), StoreUnavailable("away"))
    lane_gate = lanes(store)
    async with Call(lane_gate, "p/m"):
        pass
    await lane_gate.close()

    assert ["p_1"] == [permit for permit, *_ in store.given]


async def test_a_take_whose_fate_is_unknown_is_given_back():
    store = Shaky(StoreUnavailable("did it commit?"))
    lane_gate = lanes(store)
    with pytest.raises(Throttled) as raised:
        await Call(lane_gate, "p/m").__aenter__()
    await lane_gate.close()

    assert 2.0 == raised.value.retry_after, "the job is put back, for free"
    assert 1 == len(store.given)


async def test_whoever_is_interrupted_while_it_asks_leaves_no_permit_behind():
    store = Shaky()
    store.may_answer.clear()
    lane_gate = lanes(store)
    asking = asyncio.create_task(Call(lane_gate, "p/m").__aenter__())
    await store.is_asked.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    store.may_answer.set()
    async with asyncio.timeout(60):
        while not store.given:
            await asyncio.to_thread(lambda: None)

    assert [None] == [hint for _, hint, _ in store.given]


async def test_a_turn_that_is_near_is_waited_for_and_others_are_not():
    near, far = lanes(Shaky(Wait(1), Wait(2))), lanes(Shaky(Wait(1), Wait(5000)))
    async with Call(near, "p/m"):
        pass
    with pytest.raises(Throttled) as raised:
        await Call(far, "p/m").__aenter__()

    assert (5.0, "p/m") == (raised.value.retry_after, raised.value.lane)


async def test_a_worker_that_is_lost_puts_its_job_back():
    lane_gate = lanes(Shaky(WorkerLost()))
    with pytest.raises(Throttled):
        await Call(lane_gate, "p/m").__aenter__()


async def test_a_store_that_stays_away_does_not_hold_a_stopping_worker_up(monkeypatch):
    monkeypatch.setattr("backburner.engine.models.lanes.PARTING_SECONDS", 0.05)
    store = Shaky(Permit("p_1", 1), *[StoreUnavailable("away")] * 1000)
    lane_gate = lanes(store)
    async with Call(lane_gate, "p/m"):
        pass

    await lane_gate.close()

    assert [] == store.given
