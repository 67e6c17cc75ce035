"""The migrations of `chat`'s tables."""

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from backburner_apps.chat import tables
from backburner_apps.chat.discord.tables import interactions
from tests.apps.chat.conftest import chatting

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
OLD = [
    "ALTER TABLE chat_discord_interactions DROP COLUMN forgotten",
    "UPDATE backburner_version_chat SET version_num = '0002'",
    """
    INSERT INTO chat_discord_interactions (id, tenant, "user", channel, webhook,
        message, created_at, generation, shown, editing, sent)
    VALUES ('1', 't', 'u', 'c', 'w', 'hi', 1, 0, 0, false, 0)
    """,
]


@BOTH
async def test_the_migrations_make_what_the_code_uses(start):
    chat = await start(works=False)
    names = {table.name for table in tables.metadata.sorted_tables}

    def compared(view):
        options = {
            "include_name": lambda name, kind, _parent: (
                kind != "table" or name in names
            ),
        }
        context = MigrationContext.configure(view.connection, opts=options)
        return compare_metadata(context, tables.metadata)

    assert [] == await chat.backburner.read(compared)


@BOTH
async def test_interactions_of_an_earlier_release_are_not_forgotten(store_url):
    async with chatting(store_url, works=False) as chat:

        def age(tx):
            for statement in OLD:
                tx.connection.execute(sa.text(statement))

        await chat.backburner.transact(age)
    async with chatting(store_url, works=False) as chat:
        # As a process of the earlier release does that is still running.
        again = sa.text(OLD[-1].replace("'1'", "'2'"))
        await chat.backburner.transact(lambda tx: tx.connection.execute(again))
        rows = await chat.rows(interactions)

        assert {} == chat.backburner.unavailable
        assert {"1": False, "2": False} == {row.id: row.forgotten for row in rows}
