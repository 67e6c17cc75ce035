"""A snapshot of the file is one state, and nobody waits for it."""

import asyncio
import threading

import sqlalchemy as sa

COUNT = sa.text("SELECT count(*) FROM numbers")
MORE = sa.text("INSERT INTO numbers VALUES (1)")


async def counted(reading, store):
    """Count before and after a write that comes between; return both."""
    await store.transact(
        lambda tx: tx.connection.execute(sa.text("CREATE TABLE numbers (n INTEGER)"))
    )
    has_begun, may_end = threading.Event(), threading.Event()

    def body(connection):
        first = connection.execute(COUNT).scalar()
        has_begun.set()
        may_end.wait(20)
        return first, connection.execute(COUNT).scalar()

    found = asyncio.create_task(reading(body))
    await asyncio.to_thread(has_begun.wait, 20)
    await store.transact(lambda tx: tx.connection.execute(MORE))
    may_end.set()
    return await found


async def test_all_statements_of_a_snapshot_see_the_same(store):
    assert (0, 0) == await counted(store.snapshot, store)


async def test_without_one_each_statement_sees_the_latest(store):
    assert (0, 1) == await counted(store.read, store)
