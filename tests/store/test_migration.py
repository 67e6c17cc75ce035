"""A database of the release before goes on where it was, and back."""

import asyncio
import sqlite3
from contextlib import closing

import pytest
import sqlalchemy as sa

from backburner.domain.jobs.job import JobState
from backburner.ports.faults import NoFaults
from backburner.ports.store.jobs import ClaimRequest
from backburner.ports.store.workers import WorkerInfo
from backburner.stores import migrations, tables
from backburner.stores.postgres.store import PostgresStore
from backburner.stores.sqlite.database import Database, driver
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.doubles import FrozenClock
from backburner.testing.samples import ANN, BOB, NOON, a_new_flow, a_new_job, a_new_step
from backburner.testing.store.linked import Course, Hands

BEFORE = "0003"
JOB = sa.text("""
INSERT INTO jobs (id, tenant, "user", capability, queue, state, priority, rank,
                  max_attempts, created_at, ready_at, input)
VALUES (:id, 'acme', 'ann', 'greet', 'default', 'queued', 0, 1, 3, 0, 0, '{}')
""")
FLOW = sa.text("""
INSERT INTO flows (id, tenant, "user", state, created_at, active, troubled)
VALUES (:id, 'acme', 'ann', 'running', 0, 1, false)
""")
PLACE = sa.text("UPDATE jobs SET flow = :flow, step = :step WHERE id = :id")
EVENT = sa.text("""
INSERT INTO events (job, n, type, at)
SELECT seq, :n, 'job.queued', 0 FROM jobs WHERE id = :id
""")


class SqliteDatabase:
    def __init__(self, path):
        self.store = SqliteStore(Database(path), FrozenClock())

    async def run(self, act):
        with self.store.database.connect() as connection, connection.begin():
            return act(connection)


class PostgresDatabase:
    def __init__(self, url):
        self.store = PostgresStore(url, faults=NoFaults())

    async def run(self, act):
        async with self.store._database.transaction() as connection:
            return await connection.run_sync(act)


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request, path):
    if request.param == "sqlite":
        return SqliteDatabase(path)
    return PostgresDatabase(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def database(empty):
    yield empty
    await empty.store.close()


def schema(connection):
    """Return what the tables look like, but for the order of their columns."""
    inspector = sa.inspect(connection)
    return {
        name: (
            {
                (c["name"], str(c["type"]), c["nullable"])
                for c in inspector.get_columns(name)
            },
            {index["name"] for index in inspector.get_indexes(name)},
        )
        for name in inspector.get_table_names()
    }


def fill(connection):
    """Leave a job with two events, after which there was a third."""
    connection.execute(JOB, {"id": "job_old"})
    for n in (1, 2, 3):
        connection.execute(EVENT, {"id": "job_old", "n": n})
    connection.execute(sa.text("UPDATE jobs SET events = 2"))
    connection.execute(sa.text("DELETE FROM events WHERE n = 3"))


def numbers(connection):
    rows = connection.execute(sa.text("SELECT seq, job, n FROM events ORDER BY seq"))
    return [tuple(row) for row in rows]


@pytest.fixture
async def old(database):
    """The schema as it was, with something in it."""
    await database.run(lambda c: migrations.upgrade(c, BEFORE))
    await database.run(fill)
    return await database.run(schema)


@pytest.mark.usefixtures("old")
async def test_what_was_there_goes_on_after_the_migration(database):
    store = database.store
    before = await database.run(numbers)
    migrated = await store.migrate()
    after = await database.run(numbers)
    await store.open()
    await store.enlist(WorkerInfo("w_1", "here", 1, 1, ("default",), started_at=NOON))
    await Hands(store).end("job_old")
    [job] = await store.find(["job_old"])
    told = (await store.stream(ANN, after=0, limit=9)).events

    assert (BEFORE, migrations.HEAD) == migrated
    assert before == after
    assert (JobState.SUCCEEDED, 4) == (job.state, job.events)
    assert [1, 2, 4, 5] == [e.seq for e in told], "a number is never given twice"
    assert [1, 2, 3, 4] == [e.n for e in told]


@pytest.mark.usefixtures("old")
async def test_what_waited_before_is_served_in_turn_after_it(database):
    store = database.store
    for name in ("job_older", "job_later"):
        await database.run(lambda c, name=name: c.execute(JOB, {"id": name}))
    await store.migrate()
    await store.open()
    await store.enlist(WorkerInfo("w_1", "here", 1, 9, ("default",), started_at=NOON))
    await store.submit([a_new_job(id="job_last")])
    await store.submit([a_new_job(id=f"job_bobs{n}", owner=BOB) for n in (1, 2)])
    claims = await store.claim("w_1", "t", [ClaimRequest("default", 9)], now=NOON)

    order = [claim.id for claim in claims]
    assert {"job_old", "job_bobs1", "job_older", "job_bobs2"} == {*order[:4]}
    assert ["job_later", "job_last"] == order[4:], "each user's stay in their order"


async def test_the_migration_is_undone_without_a_trace(database, old):
    store = database.store
    await store.migrate()
    await store.open()
    await store.enlist(WorkerInfo("w_1", "here", 1, 1, ("default",), started_at=NOON))
    flow = a_new_flow(a_new_step("a"), a_new_step("b", "a"))
    await store.submit_flows([flow])
    await Course(Hands(store), flow.id).end("a")
    old_job = (await store.find(["job_old"]))[0].seq
    last = await store.latest()
    await database.run(lambda c: migrations.downgrade(c, BEFORE))
    left = await database.run(numbers)
    await database.run(lambda c: c.execute(EVENT, {"id": "job_old", "n": 9}))

    assert old == await database.run(schema)
    assert {old_job} == {job for _, job, _ in left}, "what it does not know is gone"
    assert last < (await database.run(numbers))[-1][0], "no number is given twice"
    assert {"flows", "batches", "edges"} <= {*tables.metadata.tables} - {*old}


async def test_it_can_be_done_again(database, old):
    await database.store.migrate()
    new = await database.run(schema)
    await database.run(lambda c: migrations.downgrade(c, BEFORE))
    undone = await database.run(schema)
    await database.store.migrate()

    assert old == undone != new == await database.run(schema)


async def test_steps_of_flows_that_were_there_are_counted(database):
    def fill_flows(connection):
        for seq, steps in enumerate([2, 0, 3], start=1):
            connection.execute(FLOW, {"id": f"flow_{seq}"})
            for n in range(steps):
                connection.execute(JOB, {"id": f"job_{seq}_{n}"})
                placed = {"id": f"job_{seq}_{n}", "flow": seq, "step": f"s{n}"}
                connection.execute(PLACE, placed)

    await database.run(lambda c: migrations.upgrade(c, "0011"))
    await database.run(fill_flows)
    await database.run(lambda c: c.execute(JOB, {"id": "job_alone"}))
    await database.store.migrate()
    counted = sa.text("SELECT steps FROM flows ORDER BY seq")

    assert [2, 0, 3] == await database.run(lambda c: [*c.execute(counted).scalars()])


def checks(connection):
    """Return the texts of the tables that a SQLite file has checks in."""
    rows = connection.exec_driver_sql(
        "SELECT name, sql FROM sqlite_master WHERE sql LIKE '%CHECK%'"
    )
    return dict(rows.all())


async def test_checks_hold_under_their_new_text_and_it_is_undone(path):
    database = SqliteDatabase(path)
    await database.run(lambda c: migrations.upgrade(c, "0010"))
    await database.run(lambda c: c.execute(JOB, {"id": "job_old"}))
    before = await database.run(checks)
    with closing(sqlite3.connect(path, isolation_level=None)) as open_meanwhile:
        open_meanwhile.execute("UPDATE jobs SET state = 'queued'")
        await database.store.migrate()
        after = await database.run(checks)
        for state in ("lost", "running", "succeeded"):
            with pytest.raises(sqlite3.IntegrityError):
                open_meanwhile.execute("UPDATE jobs SET state = ?", (state,))
        said = open_meanwhile.execute("PRAGMA integrity_check").fetchone()
    await database.run(lambda c: migrations.downgrade(c, "0010"))

    assert said == ("ok",)
    changed = {table for table in before if before[table] != after[table]}
    assert {"jobs", "flows", "holds", "usages"} == changed
    assert before == await database.run(checks)
    await database.store.close()


async def test_a_defensive_library_keeps_the_old_text(path):
    database = SqliteDatabase(path)
    await database.run(lambda c: migrations.upgrade(c, "0010"))
    before = await database.run(checks)

    def upgrade(connection):
        def defend(action, name, value, *_):
            asked = action == sqlite3.SQLITE_PRAGMA and name == "writable_schema"
            return sqlite3.SQLITE_IGNORE if asked and value else sqlite3.SQLITE_OK

        driver(connection).set_authorizer(defend)
        migrations.upgrade(connection, "0011")

    await database.run(upgrade)

    assert before == await database.run(checks)
    assert "0011" == await database.run(migrations.current)
    await database.store.close()


async def test_stores_of_one_process_migrate_at_once(tmp_path):
    stores = [
        SqliteStore(Database(tmp_path / f"{n}.db"), FrozenClock()) for n in range(4)
    ]

    moves = await asyncio.gather(*(store.migrate() for store in stores))

    assert [(None, migrations.HEAD)] * 4 == moves
