"""Migrations beside sessions that hold locks, and beside those that write."""

import asyncio
from contextlib import asynccontextmanager

import asyncpg
import pytest
import structlog

from backburner.domain.errors import ConfigurationError
from backburner.ports.faults import NoFaults
from backburner.stores import migrations
from backburner.stores.postgres import database, migrating
from backburner.stores.postgres.store import PostgresStore

BEFORE = "0009"
EVENT = "INSERT INTO events (job, n, type, at) VALUES (1, $1, 'job.queued', 0)"
INDEX = """
SELECT indisvalid FROM pg_index WHERE indexrelid = 'events_failed'::regclass
"""


SETTINGS = migrating.SETTINGS


def waiting_for_locks(milliseconds):
    """Set how long a try of a migration waits for a lock."""
    assert "= 5000" in SETTINGS
    return SETTINGS.replace("= 5000", f"= {milliseconds}")


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch):
    monkeypatch.setattr(migrating, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(migrating, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(migrating, "SETTINGS", waiting_for_locks(300))


@pytest.fixture
async def store(postgres_url, monkeypatch):
    """A store whose schema is a few releases old, and whose statements are cut off."""
    store = PostgresStore(postgres_url, faults=NoFaults())
    async with store._database.transaction() as connection:
        await connection.run_sync(lambda c: migrations.upgrade(c, BEFORE))
    await store.close()
    monkeypatch.setattr(database, "STATEMENT_SECONDS", 0.2)
    store = PostgresStore(postgres_url, faults=NoFaults())
    yield store
    await store.close()


@asynccontextmanager
async def a_session(url, *statements, name="somebody"):
    """Leave a transaction open that did something."""
    session = await asyncpg.connect(url, server_settings={"application_name": name})
    try:
        async with session.transaction():
            for statement in statements:
                await session.execute(statement)
            yield session
    finally:
        await session.close()


async def waiting(task, lines, count=1):
    """Return when a migration has said so many times that it waits."""
    async with asyncio.timeout(60):
        while sum(line["event"] == "migration waits for a lock" for line in lines) < (
            count
        ):
            assert not task.done(), task.result()
            await asyncio.wait({task}, timeout=0.02)


async def test_a_lock_held_for_longer_than_a_statement_may_take_is_waited_for(
    store, postgres_url
):
    with structlog.testing.capture_logs() as lines:
        async with a_session(postgres_url, "LOCK TABLE flows") as session:
            task = asyncio.create_task(store.migrate())
            await waiting(task, lines)
            pid = session.get_server_pid()
            # Twice the limit of a statement and of a wait for a lock.
            await asyncio.wait({task}, timeout=0.6)
        migrated = await task

    assert (BEFORE, migrations.HEAD) == migrated
    told = {
        (line["pid"], line["application"], line["state"])
        for line in lines
        if line["event"].startswith("migration waits")
    }
    assert (pid, "somebody", "idle in transaction") in told


async def test_one_that_gives_up_says_which_process_to_stop(
    store, postgres_url, monkeypatch
):
    monkeypatch.setattr(migrating, "PATIENCE_SECONDS", 1.0)
    async with a_session(postgres_url, "LOCK TABLE flows") as session:
        with pytest.raises(ConfigurationError) as refused:
            await store.migrate()
        told, pid = str(refused.value), session.get_server_pid()

    assert f"pid {pid} (somebody, idle in transaction for" in told
    assert "query: LOCK TABLE flows" in told
    assert f"pg_terminate_backend({pid})" in told


async def test_others_write_while_an_index_is_built(store, postgres_url, monkeypatch):
    monkeypatch.setattr(migrating, "SETTINGS", waiting_for_locks(60_000))
    writer = await asyncpg.connect(postgres_url)
    await writer.execute("SET lock_timeout = '5s'")
    with structlog.testing.capture_logs() as lines:
        async with a_session(postgres_url, EVENT.replace("$1", "1")):
            task = asyncio.create_task(store.migrate())
            await waiting(task, lines)
            await writer.execute(EVENT, 2)
        await task
    is_valid = await writer.fetchval(INDEX)
    await writer.close()

    assert is_valid
    assert migrations.HEAD == await store.version()


async def test_an_index_that_was_left_unfinished_is_built_anew(store, postgres_url):
    session = await asyncpg.connect(postgres_url)
    await session.execute("CREATE INDEX events_failed ON events (seq)")
    await session.execute(
        "UPDATE pg_index SET indisvalid = false"
        " WHERE indexrelid = 'events_failed'::regclass"
    )
    await store.migrate()
    is_valid = await session.fetchval(INDEX)
    await session.close()

    assert is_valid


async def test_of_two_that_migrate_at_once_both_find_it_done(store, postgres_url):
    other = PostgresStore(postgres_url, faults=NoFaults())
    try:
        answers = await asyncio.gather(store.migrate(), other.migrate())
    finally:
        await other.close()

    assert {migrations.HEAD} == {after for _, after in answers}
