"""Notes, and their search index, which is derived and depends on the database."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SEARCH = {
    "sqlite": ["CREATE VIRTUAL TABLE notes_search USING fts5(id UNINDEXED, text)"],
    "postgresql": [
        "CREATE TABLE notes_search (id text PRIMARY KEY, text tsvector NOT NULL)",
        "CREATE INDEX notes_search_text ON notes_search USING gin (text)",
    ],
}


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "notes_notes",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("words", sa.Integer),
        sa.Column("extra", sa.JSON),
    )
    op.create_index("notes_notes_owner", "notes_notes", ["tenant", "user", "id"])
    for statement in SEARCH[op.get_bind().dialect.name]:
        op.execute(statement)
