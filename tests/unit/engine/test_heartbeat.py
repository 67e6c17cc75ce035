"""A lease is renewed without the event loop, but not for ever."""

import threading
from datetime import timedelta

import pytest

from backburner.domain.errors import StoreUnavailable
from backburner.engine.run import heartbeat
from backburner.engine.run.heartbeat import Pulse, ThreadHeartbeat
from backburner.ports.store.workers import Vitals
from backburner.testing.doubles import FrozenClock

BLOCKED = timedelta(minutes=3)


class Heart:
    """Counts beats."""

    def __init__(self):
        self.beats = 0

    def beat(self, _worker, _vitals):
        self.beats += 1
        return True

    def close(self):
        pass


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def heart():
    return Heart()


@pytest.fixture
def pulse(heart, clock):
    blocked = BLOCKED / timedelta(milliseconds=1)
    pulse = Pulse(
        *(heart, clock),
        lease_ms=10_000,
        lost=print,
        vitals=lambda: Vitals(0, 0, None),
        blocked_ms=blocked,
    )
    pulse.begin("w")
    return pulse


def test_beats_go_on_while_the_loop_is_blocked_for_a_while(pulse, heart, clock):
    pulse.tick()
    clock.advance(BLOCKED)
    pulse.beat()

    assert 1 == heart.beats


def test_beats_end_while_the_loop_is_blocked_for_too_long(pulse, heart, clock):
    pulse.tick()
    clock.advance(BLOCKED + timedelta(milliseconds=1))
    pulse.beat()
    blocked = heart.beats
    pulse.tick()
    pulse.beat()

    assert (0, 1) == (blocked, heart.beats)


class CountingHeart:
    """Says when it has beaten three times; the first beat may fail."""

    def __init__(self, failure=None):
        self.failure = failure
        self.beats = 0
        self.thrice = threading.Event()

    def beat(self, _worker, _vitals):
        self.beats += 1
        if self.beats == 1 and self.failure is not None:
            raise self.failure
        if self.beats >= 3:
            self.thrice.set()
        return True

    def close(self):
        pass


@pytest.fixture
async def beating():
    """Start heartbeats of a heart; stop them after the test."""
    started = []

    def begin(heart, clock, **options):
        vitals = Vitals(0, 0, None)
        pulse = Pulse(
            *(heart, clock), lease_ms=10_000, lost=print, vitals=lambda: vitals
        )
        started.append(ThreadHeartbeat(pulse, every=0.01, **options))
        started[-1].start("w")

    yield begin
    for one in started:
        await one.stop()


async def test_beats_go_on_while_the_search_for_blockages_stalls(beating, clock):
    heart, stalled, go_on = CountingHeart(), threading.Event(), threading.Event()

    def look():
        stalled.set()
        go_on.wait()

    beating(heart, clock, look=look)
    has_stalled = stalled.wait(60)
    heart.thrice.clear()
    has_beaten = heart.thrice.wait(10)
    go_on.set()

    assert has_stalled
    assert has_beaten


@pytest.mark.parametrize("failure", [StoreUnavailable("gone"), ValueError("odd")])
async def test_beats_go_on_while_the_log_stalls(beating, clock, monkeypatch, failure):
    heart, stalled, go_on = CountingHeart(failure), threading.Event(), threading.Event()

    class Log:
        def warning(self, *_args, **_fields):
            stalled.set()
            go_on.wait()

        error = warning

    monkeypatch.setattr(heartbeat, "log", Log())
    beating(heart, clock)
    has_stalled, has_beaten = stalled.wait(60), heart.thrice.wait(10)
    go_on.set()

    assert has_stalled
    assert has_beaten
