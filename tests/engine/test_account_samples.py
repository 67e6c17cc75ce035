"""Upkeep records how budgets are used over time, and deletes old samples."""

import asyncio
from datetime import timedelta

import pytest

from backburner.domain.costs.balance_history import AccountName
from backburner.domain.costs.budget import Budget
from backburner.engine.maintenance.upkeep import Upkeep, UpkeepOptions
from backburner.ports.faults import NoFaults
from backburner.ports.store.budgets import HoldRequest, Viewer
from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.doubles import FrozenClock, SilentNotifier
from backburner.testing.samples import ANN

DAY = timedelta(days=1)
HERS = AccountName("user", "acme/ann", "tokens", 86_400_000)


class WatchedStore(SqliteStore):
    """Says when old samples have been deleted, the last step of a pass."""

    def __init__(self, path, clock):
        super().__init__(Database(path), clock)
        self.passed = asyncio.Event()

    async def forget_samples(self, *, limit):
        forgotten = await super().forget_samples(limit=limit)
        self.passed.set()
        return forgotten


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
async def store(path, clock):
    store = WatchedStore(path, clock)
    await store.open()
    await store.put_budgets([Budget("user", tokens=100)])
    yield store
    await store.close()


@pytest.fixture
async def upkeep(store, clock):
    options = UpkeepOptions(sample_every=0.01)
    upkeep = Upkeep(store, SilentNotifier(), clock, NoFaults(), options)
    upkeep.start()
    yield upkeep
    await upkeep.stop()


async def held(store):
    store.passed.clear()
    await store.passed.wait()  # the pass that is running may have read before
    store.passed.clear()
    await store.passed.wait()
    found = await store.account_history(Viewer(), HERS)
    return [] if found is None else [one.balance.held for one in found.samples]


async def reserve(store, name, tokens):
    at = await store.read_clock() + 2 * HERS.per
    await store.reserve(HoldRequest(name, ANN, at, tokens=tokens))


@pytest.mark.usefixtures("upkeep")
async def test_upkeep_samples_what_changes_until_the_window_ends(store, clock):
    await reserve(store, "a", 10)
    first = await held(store)
    await reserve(store, "b", 20)
    same_slot = await held(store)
    clock.advance(DAY / 48)
    next_slot = await held(store)
    clock.advance(DAY)
    await reserve(store, "c", 5)
    next_window = await held(store)

    assert [[10], [10], [10, 30], [5]] == [first, same_slot, next_slot, next_window]
