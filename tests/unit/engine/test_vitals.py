"""How late an event loop runs, as the heartbeat's thread reads it."""

import asyncio
import threading
from datetime import timedelta

import pytest
import uvloop

from backburner.clock import SystemClock
from backburner.engine.observability import vitals
from backburner.engine.observability.vitals import LagMeter, resident_memory
from backburner.testing.doubles import FrozenClock


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_another_thread_reads_the_lag_while_the_loop_is_blocked(factory):
    worst, seen = [], threading.Event()

    def read(meter):
        while meter.worst_ms() < 100:
            pass
        worst.append(meter.worst_ms())
        seen.set()

    async def block():
        meter = LagMeter(SystemClock())
        meter.start()
        thread = threading.Thread(target=read, args=(meter,), daemon=True)
        thread.start()
        is_seen = seen.wait(60)  # blocks the loop until the thread has seen it
        thread.join(60)
        meter.stop()
        return is_seen

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(block())
    assert 100 <= worst[0]


async def test_a_lag_is_forgotten_after_twenty_readings():
    clock = FrozenClock()
    meter = LagMeter(clock)
    meter.start()
    clock.advance(timedelta(seconds=3.5))
    meter._tick()
    first = meter.worst_ms()
    worst = []
    for _ in range(20):
        clock.advance(timedelta(seconds=0.5))
        meter._tick()
        worst.append(meter.worst_ms())
    meter.stop()

    assert 3_000 == first
    assert [3_000] * 19 + [0] == worst


def test_the_memory_of_a_process_is_known_here():
    memory = resident_memory()

    assert memory is not None
    assert 10_000_000 < memory


@pytest.mark.parametrize("content", [None, b"", b"1", b"1 many 3"])
def test_memory_that_cannot_be_read_is_unknown(tmp_path, monkeypatch, content):
    """*Before: an error, and with it no heartbeat, if the file was there.*"""
    if content is not None:
        tmp_path.joinpath("statm").write_bytes(content)
    monkeypatch.setattr(vitals, "PAGES", tmp_path / "statm")

    assert resident_memory() is None
