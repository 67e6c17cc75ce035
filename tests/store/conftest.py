import shutil

import pytest

from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.doubles import FrozenClock


class Passed:
    """Failpoints that were passed, in order."""

    def __init__(self):
        self.names = []

    def hit(self, name):
        self.names.append(name)


@pytest.fixture
def passed():
    return Passed()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path, passed, template):
    shutil.copy(template, path)
    store = SqliteStore(Database(path), FrozenClock(), faults=passed)
    await store.open()
    yield store
    await store.close()
