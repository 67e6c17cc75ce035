"""A handler that blocks the event loop is named while it does."""

import asyncio
import threading
from datetime import timedelta

import pytest
import uvloop

from backburner import Context, capability
from backburner.engine.observability import vitals
from backburner.engine.observability.vitals import LagMeter
from backburner.engine.run import blocking
from backburner.engine.run.blocking import BlockageLog
from backburner.testing.doubles import FrozenClock

SECOND = timedelta(seconds=1)


class Log:
    """Keeps warnings, and says when the first of them was written."""

    def __init__(self):
        self.lines = []
        self.written = threading.Event()

    def warning(self, event, **fields):
        self.lines.append({"event": event, **fields})
        self.written.set()


@pytest.fixture
def log(monkeypatch):
    log = Log()
    monkeypatch.setattr(blocking, "log", log)
    return log


async def test_a_handler_that_blocks_is_named_while_it_does(working, log, monkeypatch):
    monkeypatch.setattr(vitals, "ALARM_MS", 50)

    def compute(secret):
        assert log.written.wait(60), secret

    @capability("compute")
    async def handler(_ctx: Context, secret: str) -> bool:
        compute(secret)
        return log.written.is_set()

    bb = await working(handler, beat_seconds=0.1)
    ticket = await bb.submit(handler, "my password")
    assert await ticket.result()

    line = log.lines[0]
    assert (ticket.id, "compute") == (line["job_id"], line["capability"])
    assert "engine/test_blocking.py:" in line["place"]
    assert line["place"].endswith("<locals>.compute")
    assert "password" not in str(log.lines)


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
async def meter(clock):
    meter = LagMeter(clock)
    meter.start()
    yield meter
    meter.stop()


async def test_one_blockage_is_logged_once_and_the_next_one_again(meter, clock, log):
    told = BlockageLog(meter, lambda: None)

    def blocked():
        """Let another thread look while this one, the event loop's, is here."""
        thread = threading.Thread(target=told.look)
        thread.start()
        thread.join()
        return len(log.lines)

    counts = [blocked()]
    for _ in range(3):
        clock.advance(SECOND)
        counts.append(blocked())
    meter.stop()
    meter.start()
    counts.append(blocked())
    clock.advance(2 * SECOND)
    counts.append(blocked())

    assert [0, 0, 1, 1, 1, 2] == counts
    assert all(line["place"].endswith(".blocked") for line in log.lines)


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_idle_loop_is_not_named_though_its_timer_is_late(factory, clock, log):
    async def be_idle():
        meter = LagMeter(clock)
        meter.start()
        told = BlockageLog(meter, lambda: None)
        clock.advance(2 * SECOND)  # as after the machine was suspended
        late = meter.blocked_since()
        await asyncio.to_thread(told.look)
        meter.stop()
        return late

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(be_idle()) is not None
    assert [] == log.lines
