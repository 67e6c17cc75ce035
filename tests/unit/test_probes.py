"""What a worker's probes say, asked from a thread beside its event loop."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from backburner.domain.errors import StoreUnavailable
from backburner.http import probes, state
from backburner.http.probes import BLOCKED, SILENT, STOPPING, Probes


async def answers():
    """Answer as a store that is there."""


async def fails():
    raise StoreUnavailable("gone")


async def hangs():
    await asyncio.Event().wait()


def aside(check):
    """Ask from a thread with an event loop of its own, as the probe server does."""
    return asyncio.to_thread(lambda: asyncio.run(check()))


def while_blocked(check):
    """Ask the same while the event loop of the caller stands still."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(check())).result()


@pytest.mark.parametrize(
    ("ping", "reason"), [(answers, None), (fails, SILENT), (hangs, SILENT)]
)
async def test_a_worker_is_ready_if_its_store_answers(monkeypatch, ping, reason):
    if ping is hangs:
        monkeypatch.setattr(state, "READY_SECONDS", 0.01)

    found = await aside(Probes(ping, blocked_seconds=180).ready)

    assert reason == found


async def test_a_worker_whose_loop_stands_still_is_not_ready(monkeypatch):
    monkeypatch.setattr(probes, "TURN_SECONDS", 0.01)
    asked = Probes(answers, blocked_seconds=180)

    blocked = while_blocked(asked.ready)
    monkeypatch.undo()

    assert BLOCKED == blocked
    assert await aside(asked.ready) is None


async def test_a_worker_is_to_be_restarted_once_its_lease_has_ended():
    asked = Probes(answers, blocked_seconds=0)
    patient = Probes(answers, blocked_seconds=3600)

    async def until_blocked():
        while (found := await asked.alive()) is None:
            pass
        return found

    assert BLOCKED == while_blocked(until_blocked)
    assert while_blocked(patient.alive) is None
    await asyncio.wrap_future(asked._turn)
    assert await aside(patient.alive) is None


async def test_a_worker_that_stops_is_not_ready_and_alive():
    asked = Probes(answers, blocked_seconds=180)
    asked.is_stopping = True

    assert STOPPING == await aside(asked.ready)
    assert await aside(asked.alive) is None


async def test_an_application_that_does_not_run_is_named():
    asked = Probes(answers, blocked_seconds=180, unavailable=["songs"])

    assert {"status": "degraded", "unavailable": ["songs"]} == asked.status()
