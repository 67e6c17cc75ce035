"""Sums of usage: only the groups that are asked for leave the store."""

import pytest
import sqlalchemy as sa

from backburner.adapters import find_store
from backburner.clock import SystemClock
from backburner.ports.faults import NoFaults
from backburner.ports.store.usage import UsageFilter
from backburner.stores.shared import usages
from tests import homes

pytestmark = pytest.mark.parametrize("store_url", homes.STORES, indirect=True)

CALLS = 2_000
FILL = f"""
INSERT INTO usages (job, generation, epoch, n, at, tenant, "user", capability, tags,
                    model, input_tokens, output_tokens, cached_tokens, late)
WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {CALLS})
SELECT n, 0, 1, 0, n * 60000, 'acme', 'user' || n, 'greet', 'all' || chr(10) || n,
       'model' || n, n, 1, 0, FALSE
  FROM n
"""  # noqa: S608 - a constant of this file


@pytest.fixture
async def store(store_url):
    store = find_store(store_url, SystemClock(), NoFaults())
    await store.open()
    fill = FILL.replace("chr", "char") if "sqlite" in store_url else FILL
    await store.transact(lambda tx: tx.connection.execute(sa.text(fill)))
    yield store
    await store.close()


@pytest.mark.parametrize("by", ["tag", "capability", "model", "user", "day", "minute"])
async def test_only_the_groups_that_are_asked_for_are_read(store, by, monkeypatch):
    read = []
    spent_of = usages.spent_of
    monkeypatch.setattr(usages, "spent_of", lambda row: read.append(1) or spent_of(row))

    whole, found = await store.sums(UsageFilter("acme"), by, limit=3)

    assert CALLS == whole.calls
    assert len(read) == 1 + len(found) <= 4
    if by == "tag":
        assert ["all", f"{CALLS}", f"{CALLS - 1}"] == [tag for tag, _ in found]
