import ast
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from backburner.domain.errors import ConfigurationError
from backburner.stores import migrations, tables
from backburner.stores.shared.rows import JOB_COLUMNS
from backburner.stores.sqlite.database import Database
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.doubles import FrozenClock

TABLES = pytest.mark.parametrize("name", sorted(tables.metadata.tables))


@pytest.fixture
def empty(path):
    store = SqliteStore(Database(path), FrozenClock())
    yield store
    store.database.dispose()


def the_tables(store):
    with store.database.connect_reader() as connection:
        return set(sa.inspect(connection).get_table_names())


def go_down(store):
    with store.database.connect() as connection, connection.begin():
        migrations.downgrade(connection, "base")


@TABLES
async def test_the_migrations_make_the_tables_that_the_code_knows(empty, name):
    await empty.migrate()

    with empty.database.connect_reader() as connection:
        made = {
            c["name"]: (str(c["type"]), c["nullable"])
            for c in sa.inspect(connection).get_columns(name)
        }
        known = {
            c.name: (str(c.type.compile(connection.dialect)), c.nullable)
            for c in tables.metadata.tables[name].columns
        }

    assert known == made


async def test_every_column_of_a_job_can_be_read(empty):
    await empty.migrate()

    with empty.database.connect_reader() as connection:
        rows = connection.execute(sa.select(*JOB_COLUMNS)).all()

    assert [] == rows


async def test_the_migrations_go_up_and_down_and_up_again(empty):
    await empty.migrate()
    full = the_tables(empty)
    go_down(empty)
    bare = the_tables(empty)
    again = await empty.migrate()

    assert set(tables.metadata.tables) == full - bare
    assert (None, migrations.HEAD) == again
    assert full == the_tables(empty)


async def test_migrating_twice_changes_nothing(empty):
    await empty.migrate()

    assert (migrations.HEAD, migrations.HEAD) == await empty.migrate()


def test_the_head_is_the_newest_revision():
    scripts = ScriptDirectory(next(iter(migrations.__path__)))

    assert [migrations.HEAD] == scripts.get_heads()


async def test_a_store_of_another_release_is_not_opened(empty):
    await empty.migrate()
    with empty.database.connect() as connection, connection.begin():
        connection.execute(
            sa.text(f"UPDATE {migrations.VERSION_TABLE} SET version_num = '9999'")  # noqa: S608
        )

    with pytest.raises(ConfigurationError, match=r"BACKBURNER_STORE.*9999.*migrate"):
        await empty.open()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("state", "'lost'"),
        ("state", "'running'"),
        ("state", "'succeeded'"),
        ("state", "'scheduled'"),
        ("token", "'t'"),
        ("finished_at", "1"),
    ],
)
async def test_the_schema_refuses_a_job_that_makes_no_sense(empty, column, value):
    await empty.migrate()
    change = sa.text(f"UPDATE jobs SET {column} = {value}")  # noqa: S608

    with empty.database.connect() as connection, connection.begin():
        connection.execute(
            tables.jobs.insert(),
            {
                "id": "job_1",
                "tenant": "acme",
                "user": "ann",
                "capability": "greet",
                "queue": "default",
                "state": "queued",
                "priority": 0,
                "rank": 1,
                "max_attempts": 3,
                "created_at": 0,
                "ready_at": 0,
                "input": "{}",
            },
        )
        with pytest.raises(sa.exc.IntegrityError, match="CHECK"):
            connection.execute(change)


REVISIONS = Path(migrations.__file__).parent / "versions"
FROM_HERE_ON = "0013"
"""Older revisions ran while the processes were stopped."""


def indexed_at_once(revision):
    """Name the tables that a revision indexes while nobody else can write."""
    calls = [
        node
        for node in ast.walk(ast.parse(revision))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    made = {c.args[0].value for c in calls if c.func.attr == "create_table"}
    return {c.args[1].value for c in calls if c.func.attr == "create_index"} - made


def test_a_revision_builds_indexes_of_live_tables_concurrently():
    late = [path for path in REVISIONS.glob("[0-9]*.py") if path.name >= FROM_HERE_ON]

    assert {} == {
        path.name: tables
        for path in late
        if (tables := indexed_at_once(path.read_text()))
    }


def test_one_that_does_not_is_found():
    revision = (REVISIONS / "0002_keys.py").read_text()
    locking = 'op.create_index("jobs_by_name", "jobs", ["name"])\n'

    assert set() == indexed_at_once(revision)
    assert {"jobs"} == indexed_at_once(revision + locking)
