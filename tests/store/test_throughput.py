"""Rates of queues: in a busy minute, an estimate from events of the whole minute."""

import pytest

from backburner.adapters import find_store
from backburner.clock import SystemClock
from backburner.ports.faults import NoFaults
from backburner.stores import tables
from backburner.stores.shared import activity
from tests import homes

pytestmark = pytest.mark.parametrize("store_url", homes.STORES, indirect=True)

NOON = 1_800_000_000_000
MINUTE = 60_000
BUSY, QUIET = 5_000, 200
"""How many jobs pass in the two queues, each with three events."""
TYPES = ("job.queued", "job.started", "job.succeeded")


def a_job(seq):
    queue = "busy" if seq <= BUSY else "quiet"
    owner = {"tenant": "acme", "user": "ann", "capability": "greet", "queue": queue}
    order = {"priority": 0, "rank": 1, "max_attempts": 3}
    times = {"created_at": 1, "ready_at": 1, "finished_at": 1}
    done = {"state": "succeeded", "input": "{}", "output": "1"}
    return {"seq": seq, "id": f"job_{seq}"} | owner | order | times | done


def passing(first, count, at, ms):
    """Return the events of jobs that pass one by one within so many milliseconds."""
    owner = {"tenant": "acme", "user": "ann"}
    return [
        {"job": first + number, "n": n, "type": type_, "at": at + number * ms // count}
        | owner
        for number in range(count)
        for n, type_ in enumerate(TYPES, 1)
    ]


async def insert(store, table, rows):
    await store.transact(lambda tx: tx.connection.execute(table.insert(), rows))


@pytest.fixture
async def store(store_url):
    store = find_store(store_url, SystemClock(), NoFaults())
    await store.open()
    try:
        numbers = range(1, BUSY + QUIET + 1)
        await insert(store, tables.jobs, [a_job(seq) for seq in numbers])
        yield store
    finally:
        await store.close()


@pytest.mark.parametrize("most", [100_000, 3_000])
async def test_a_minute_is_counted_or_estimated_as_a_whole(store, most, monkeypatch):
    monkeypatch.setattr(activity, "MOST_MOVES", most)
    # The busy queue has a burst of a second, then the other a quiet minute.
    await insert(store, tables.events, passing(1, BUSY, NOON, 1_000))
    quiet = passing(BUSY + 1, QUIET, NOON + 1_000, MINUTE - 2_000)
    await insert(store, tables.events, quiet)

    found = await store.throughput(since=NOON)
    later = await store.throughput(since=NOON + 10_000)

    room = 0 if most > 3 * BUSY else 0.1
    for moved in found["busy"]:
        assert BUSY == pytest.approx(moved, rel=room)
    for moved in found["quiet"]:
        assert QUIET == pytest.approx(moved, rel=5 * room)
    assert {"quiet"} == set(later), "the burst is over"


async def test_a_burst_of_as_many_as_are_read_is_exact(store, monkeypatch):
    monkeypatch.setattr(activity, "MOST_MOVES", 3 * BUSY)
    await insert(store, tables.events, passing(1, BUSY, NOON, 1_000))

    assert {"busy": (BUSY, BUSY)} == await store.throughput(since=NOON - 1)
