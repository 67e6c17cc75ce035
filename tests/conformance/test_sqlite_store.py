import shutil

import pytest

from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.doubles import FrozenClock
from backburner.testing.store import StoreConformance


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def clock(self):
        return FrozenClock()

    @pytest.fixture
    def let_pass(self, clock):
        return clock.advance

    @pytest.fixture
    async def store(self, clock, tmp_path, template):
        path = shutil.copy(template, tmp_path / "jobs.db")
        store = SqliteStore(Database(path), clock)
        await store.open()
        yield store
        await store.close()
