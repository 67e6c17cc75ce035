"""Calls reach the store while a run goes on, once, and whatever becomes of it."""

import asyncio
from datetime import timedelta

import pytest

from backburner import capability
from backburner.domain.costs.usage import Price, Usage
from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.outcome import Done
from backburner.engine.models.usage import LONG_MS, PATIENCE_MS, UsageLog, UsageRecorder
from backburner.engine.run.attempt import Attempt
from backburner.engine.run.services import Services
from backburner.testing.doubles import FakeContext, FrozenClock
from backburner.testing.samples import NOON, a_claim

CALL = Usage("m", 10, 2)
LONG = timedelta(milliseconds=LONG_MS)
PATIENCE = timedelta(milliseconds=PATIENCE_MS)


class Ledger:
    """Usages that keep every booking; they fail when told to."""

    def __init__(self):
        self.bookings = []
        self.faults = []
        self.told = asyncio.Event()

    async def book(self, bookings):
        if self.faults:
            raise self.faults.pop(0)
        self.bookings += bookings
        self.told.set()

    @property
    def calls(self):
        return [len(booking.calls) for booking in self.bookings]


class Prices:
    """A price for everything, once it is loaded."""

    def __init__(self):
        self.is_loaded = False

    async def load(self):
        self.is_loaded = True

    def price(self, call):
        return Price(call.tokens, "v") if self.is_loaded else Price()


class RaisingPrices(Prices):
    def price(self, _call):
        raise OverflowError


class BrokenPrices(Prices):
    async def load(self):
        raise ImportError


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def ledger():
    return Ledger()


@pytest.fixture
async def usage_recorder(ledger, clock):
    usage_recorder = UsageRecorder(ledger, Prices(), clock)
    usage_recorder.start()
    yield usage_recorder
    await usage_recorder.stop()


async def until_told(ledger):
    async with asyncio.timeout(60):
        await ledger.told.wait()
    ledger.told.clear()


async def test_a_call_of_a_long_run_is_told_at_once(usage_recorder, ledger, clock):
    usage_log = UsageLog(a_claim(), usage_recorder)
    clock.advance(LONG)
    usage_log.add(CALL)
    await until_told(ledger)

    [booking] = ledger.bookings
    now = NOON + LONG_MS
    assert (1, "t" * 16, 0, 2) == booking[:4]
    assert (CALL._replace(at=now, cost=12, price_version="v"),) == booking.calls


async def test_a_run_whose_usage_is_refused_does_not_hold_up_others(
    usage_recorder, ledger, clock
):
    ledger.faults = [ValueError(), ValueError()]
    clock.advance(LONG)
    UsageLog(a_claim(), usage_recorder).add(CALL)
    UsageLog(a_claim(seq=2), usage_recorder).add(CALL)
    await until_told(ledger)

    assert [2] == [booking.seq for booking in ledger.bookings]


async def test_a_run_that_is_over_at_once_tells_nothing_before_its_end(
    usage_recorder, ledger, clock
):
    usage_log = UsageLog(a_claim(), usage_recorder)
    usage_log.add(CALL)
    await usage_recorder.ready()

    settled = usage_recorder.settle(usage_log)
    usage_recorder.settled(usage_log)
    clock.advance(LONG)
    other = UsageLog(a_claim(seq=2), usage_recorder)
    other.add(CALL)
    await until_told(ledger)

    assert [12] == [call.cost for call in settled]
    assert [2] == [booking.seq for booking in ledger.bookings]


async def test_a_call_is_booked_while_its_settlement_is_waited_for(
    usage_recorder, ledger, clock
):
    usage_log = UsageLog(a_claim(), usage_recorder)
    usage_log.add(CALL)
    usage_recorder.settle(usage_log)
    clock.advance(PATIENCE)
    await until_told(ledger)

    assert [1] == ledger.calls


async def test_a_price_that_raises_holds_up_nobody(ledger, clock):
    usage_recorder = UsageRecorder(ledger, RaisingPrices(), clock)
    usage_recorder.start()
    usage_log = UsageLog(a_claim(), usage_recorder)
    clock.advance(LONG)
    usage_log.add(CALL)
    await until_told(ledger)
    await usage_recorder.stop()

    assert [None] == [call.cost for call in ledger.bookings[0].calls]


async def test_all_calls_of_a_run_are_told_each_time_in_order(
    usage_recorder, ledger, clock
):
    usage_log = UsageLog(a_claim(), usage_recorder)
    clock.advance(LONG)
    usage_log.add(CALL)
    await until_told(ledger)
    usage_log.add(CALL._replace(model="n"))
    await until_told(ledger)

    assert [1, 2] == ledger.calls
    assert ["m", "n"] == [call.model for call in ledger.bookings[-1].calls]


async def test_a_run_that_lost_its_job_is_booked_without_patience(
    usage_recorder, ledger
):
    usage_log = UsageLog(a_claim(), usage_recorder)
    usage_log.add(CALL)
    usage_recorder.lose(usage_log)
    await until_told(ledger)

    assert [1] == ledger.calls


async def test_what_a_store_refuses_for_now_is_told_again(
    usage_recorder, ledger, clock
):
    ledger.faults.append(StoreUnavailable("not now"))
    usage_log = UsageLog(a_claim(), usage_recorder)
    clock.advance(LONG)
    usage_log.add(CALL)
    await until_told(ledger)

    assert [1] == ledger.calls
    assert not usage_log.is_open


async def test_what_is_left_is_told_when_the_worker_stops(usage_recorder, ledger):
    UsageLog(a_claim(), usage_recorder).add(CALL)

    await usage_recorder.stop()

    assert [1] == ledger.calls


async def test_calls_are_booked_without_prices_if_there_are_none(ledger, clock):
    usage_recorder = UsageRecorder(ledger, BrokenPrices(), clock)
    usage_recorder.start()
    usage_log = UsageLog(a_claim(), usage_recorder)
    clock.advance(LONG)
    usage_log.add(CALL)
    await until_told(ledger)
    await usage_recorder.stop()

    assert [None] == [call.cost for call in ledger.bookings[0].calls]


def test_a_context_of_a_test_keeps_what_its_handler_used():
    ctx = FakeContext()

    ctx.used("m", input_tokens=10, output_tokens=2)

    assert (CALL,) == ctx.usage
    with pytest.raises(ValueError, match="token count"):
        ctx.used("m", input_tokens=-1, output_tokens=2)


@capability("stepping")
async def stepping(ctx: FakeContext, value: int) -> int:
    return await ctx.step("one more", lambda: value + 1)


async def test_prices_are_not_loaded_for_a_run_without_calls():
    prices = Prices()
    services = Services(None, usage_sink=UsageRecorder(Ledger(), prices, FrozenClock()))

    outcome = await Attempt(a_claim(input="1"), stepping).run(services)

    assert Done("2") == outcome
    assert not prices.is_loaded
