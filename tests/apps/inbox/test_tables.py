"""The inbox's tables: made once, as the code has them, and erased with their user."""

import pytest
import sqlalchemy as sa
import telegram
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from backburner import Owner
from backburner_apps.inbox import book, tables
from tests.apps.inbox.conftest import OWNER, written

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
EVA = telegram.User(8, "Eva", is_bot=False)
INDEX = "uq_queue_idempotency_active"
GONE = [
    sa.text("DELETE FROM backburner_version_inbox"),
    sa.text("DROP INDEX uq_queue_idempotency_active"),
]


@BOTH
async def test_the_migration_can_run_again_over_what_is_there(start):
    first = await start()
    await first.say("Buy milk")
    await first.rest()

    def forget(tx):
        for statement in GONE:
            tx.connection.execute(statement)

    await first.backburner.transact(forget)
    again = await start()
    indexes = await again.backburner.read(
        lambda view: sa.inspect(view.connection).get_indexes("queue_idempotency")
    )

    assert {} == again.backburner.unavailable
    assert ["Buy milk"] == [task.title for task in await again.tasks()]
    [unique] = [index for index in indexes if index["name"] == INDEX]
    assert ["queue_name", "idempotency_key"] == unique["column_names"]
    assert unique["unique"]
    [where] = [text for name, text in options_of(unique) if name.endswith("_where")]
    assert "deleted_at IS NULL" in str(where)


def options_of(index):
    return index["dialect_options"].items()


@BOTH
async def test_the_migration_makes_what_the_code_uses(start):
    inbox = await start(works=False)
    names = {table.name for table in tables.metadata.sorted_tables}

    def compared(view):
        options = {
            "include_name": lambda name, kind, _parent: (
                kind != "table" or name in names
            ),
        }
        context = MigrationContext.configure(view.connection, opts=options)
        return compare_metadata(context, tables.metadata)

    assert [] == await inbox.backburner.read(compared)


async def test_two_active_records_of_one_key_cannot_be(start):
    inbox = await start(works=False)
    row = {
        "tenant": "t",
        "user": "u",
        "queue_name": "q",
        "idempotency_key": "k",
        "status": "SUCCESS",
        "correlation_id": "c",
        "created_at": 1,
        "updated_at": 1,
    }
    add = tables.records.insert()

    def twice(tx):
        tx.connection.execute(add, {**row, "id": "1", "deleted_at": 1})
        tx.connection.execute(add, {**row, "id": "2", "deleted_at": None})
        tx.connection.execute(add, {**row, "id": "3", "deleted_at": None})

    with pytest.raises(sa.exc.IntegrityError):
        await inbox.backburner.transact(twice)


@BOTH
async def test_a_user_is_erased_and_others_stay(start):
    inbox = await start(telegram_bot_token="")
    for sender in (EVA, *[telegram.User(7, "Ada", is_bot=False)] * 3):
        await inbox.post(written("Pack: passport, shoes", sender))
    await inbox.rest()
    counts = []
    while not counts or counts[-1]:
        counts.append(
            await inbox.backburner.transact(lambda tx: book.erase(tx, OWNER, 2))
        )
    left = {}
    for table in tables.metadata.sorted_tables:
        left[table.name] = len(await inbox.rows(table))

    assert [2, 1] == counts[:2]
    assert {
        "inbox_users": 1,
        "inbox_tasks": 1,
        "inbox_subtasks": 2,
        "queue_idempotency": 1,
        "inbox_outbox": 1,
    } == left
    [task] = await inbox.tasks()
    assert "telegram:8" == task.user


async def test_old_records_go_and_those_at_work_stay(start):
    inbox = await start(works=False, keep_days=1)
    day = 24 * 60 * 60 * 1000
    owner, old = Owner("default", "telegram:1"), 3 * day

    def age(tx):
        for n, status in enumerate(["SUCCESS", "FAILED", "PROCESSING"]):
            key = book.Key("task-parsing", str(n))
            book.open_record(tx, owner, key, "c", status)
        tx.connection.execute(tables.records.update().values(created_at=tx.now() - old))

    await inbox.backburner.transact(age)
    await inbox.say("Buy milk")
    left = [row.status for row in await inbox.rows(tables.records)]

    assert ["PROCESSING", "PROCESSING"] == left, "the new one, and the old one at work"
