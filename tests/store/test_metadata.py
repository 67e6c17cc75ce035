"""Jobs are found by metadata as it is stored, whatever it is made of."""

import random

import pytest
import sqlalchemy as sa

from backburner.adapters import find_store
from backburner.clock import SystemClock
from backburner.domain.errors import InvalidInput
from backburner.engine.submit.submission import check_sought
from backburner.ports.faults import NoFaults
from backburner.ports.store.maintenance import JobFilter
from backburner.stores.shared.job_filters import has_pair
from backburner.stores.shared.settling import as_json
from backburner.testing.store.acts import submit
from tests import homes

pytestmark = pytest.mark.parametrize("store_url", homes.STORES, indirect=True)

JOBS, SOUGHT = 3_000, 300
MARKS = (",", ":", '"', "\\", "{", "}", "a", "%", "\n", "ж")
"""What stored JSON consists of, and what it escapes."""
MALFORMED = ("", "{", "null", "[]", '{"order"', '{"order":"A-10', "\\u00")


@pytest.fixture
async def store(store_url):
    store = find_store(store_url, SystemClock(), NoFaults())
    await store.open()
    yield store
    await store.close()


def drawn(chance, least):
    return "".join(chance.choices(MARKS, k=chance.randint(least, 3)))


def is_sought(pair):
    try:
        check_sought(dict([pair]))
    except InvalidInput:
        return False
    return True


def like(column, name, text):
    """Search as one might: for the pair anywhere in the text."""
    return column.like(f"%{as_json({name: text})[1:-1]}%")


def wrong(connection, stored, pairs, condition):
    """Return the pairs for which a condition finds other rows than it should."""
    table = sa.table("odd", sa.column("metadata", sa.Text))
    connection.execute(sa.text("CREATE TEMPORARY TABLE odd (metadata TEXT)"))
    rows = [{"metadata": as_json(one)} for one in stored]
    connection.execute(sa.insert(table), rows)
    seen = {}
    for pair in pairs:
        query = sa.select(table.c.metadata).where(condition(table.c.metadata, *pair))
        seen[pair] = sorted(connection.execute(query).scalars())
    connection.execute(sa.text("DROP TABLE odd"))
    return {
        (name, text)
        for (name, text), found in seen.items()
        if found != sorted(as_json(one) for one in stored if one.get(name) == text)
    }


async def test_a_pair_is_found_exactly_among_all_that_json_is_made_of(store):
    chance = random.Random(7)
    stored = [
        {drawn(chance, 1): drawn(chance, 0) for _ in range(chance.randint(1, 4))}
        for _ in range(JOBS)
    ]
    pairs = {pair for one in stored[:SOUGHT] for pair in one.items()}
    # What looks like the end of one text and the beginning of the next.
    stored += [{"a,": ":", ",a": "b"}, {"b": "a,", ":": "a"}, {"a,": ":", ":": "b"}]
    stored += [{",": ":"}, {":": ","}]

    async def tried(pairs, condition):
        return await store.transact(
            lambda tx: wrong(tx.connection, stored, pairs, condition)
        )

    assert set() == await tried({pair for pair in pairs if is_sought(pair)}, has_pair)
    assert await tried(pairs, like), "*Control*: another search is wrong"
    refused = {(",", ":"), (":", ",")}
    assert not any(map(is_sought, refused))
    assert refused == await tried(refused, has_pair), "*Control*: it could not be told"


async def test_what_is_malformed_breaks_no_search(store):
    good = await submit(store, metadata={"order": "A-1042"})
    bad = [await submit(store) for _ in MALFORMED]

    def spoil(tx):
        update = sa.text("UPDATE jobs SET metadata = :text WHERE id = :id")
        for job, text in zip(bad, MALFORMED, strict=True):
            tx.connection.execute(update, {"id": job, "text": text})

    await store.transact(spoil)
    where = JobFilter(metadata={"order": "A-1042"})

    assert [good] == [job.id for job in await store.jobs(where, before=None, limit=9)]
    assert 1 == await store.count(where)
