"""A lease is renewed without the event loop, but not for ever."""

from datetime import timedelta

import pytest

from backburner.engine.run.heartbeat import Pulse
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
