"""The tables of the Tasks service; `migrations` creates them."""

from collections.abc import Sequence

import sqlalchemy as sa

from backburner.tables import key_table

metadata = sa.MetaData()

requests = sa.Table(
    "tasks_requests",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("ai_request_id", sa.Text, unique=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("error", sa.JSON(none_as_null=True)),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("ended_at", sa.BigInteger),
)

tasks = sa.Table(
    "tasks_tasks",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False, unique=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("description", sa.Text),
    sa.Column("due_date", sa.Text),
    sa.Column("priority", sa.Text, nullable=False),
    sa.Column("category", sa.Text),
    sa.Column("recurrence", sa.Text),
    sa.Column("natural_language", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Index("ix_tasks_tasks_owner", "tenant", "user", "id"),
)

subtasks = sa.Table(
    "tasks_subtasks",
    metadata,
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("title", sa.Text, nullable=False),
)

keys = key_table("tasks_keys", metadata)
"""The request of each `Idempotency-Key`, and the digest of its body."""


def all_tables() -> Sequence[sa.Table]:
    """Return the tables that `backburner move` copies."""
    return metadata.sorted_tables
