"""PostgreSQL keeps the same promises. Its clock is the server's: here, a table's."""

import threading
from dataclasses import fields

import pytest

from backburner.ports.faults import NoFaults
from backburner.stores.postgres.queries import Queries
from backburner.stores.postgres.store import PostgresStore
from backburner.testing.store import StoreConformance
from tests.lock_order import recording

CLOCK = "clock_timestamp()"
TABLE_CLOCK = "(SELECT to_timestamp(ms / 1000.0) FROM tests.clock)"
SET_CLOCK = """
CREATE SCHEMA IF NOT EXISTS tests;
CREATE TABLE IF NOT EXISTS tests.clock (ms bigint);
DELETE FROM tests.clock;
INSERT INTO tests.clock VALUES (1000000000)
"""
"""In a schema of its own, which stays from test to test."""


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def clock(self, migrated_url, _migrated):  # noqa: ARG002 - it is emptied first
        _migrated.execute(SET_CLOCK)
        return _migrated

    @pytest.fixture
    async def store(self, migrated_url, clock):  # noqa: ARG002 - it is set
        store = PostgresStore(migrated_url, queries=_queries(), faults=NoFaults())
        with recording() as recorder:
            await store.open()
            yield store
            await store.close()
        assert [] == recorder.inversions, "locks are taken in the documented order"

    @pytest.fixture
    def let_pass(self, clock):
        def advance(span):
            ms = round(span.total_seconds() * 1000)
            advanced = f"UPDATE tests.clock SET ms = ms + {ms}"  # noqa: S608 - ours
            # In a thread, as this one has a loop that is running.
            thread = threading.Thread(target=clock.execute, args=[advanced])
            thread.start()
            thread.join()

        return advance


def _queries():
    loaded = Queries.load()
    return Queries(
        **{
            field.name: getattr(loaded, field.name).replace(CLOCK, TABLE_CLOCK)
            for field in fields(Queries)
        }
    )
