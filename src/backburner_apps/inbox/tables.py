"""The tables of the inbox; `migrations` creates them."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

metadata = sa.MetaData()
ACTIVE: Final = sa.text("deleted_at IS NULL")

users = sa.Table(
    "inbox_users",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, primary_key=True),
    sa.Column("telegram_id", sa.BigInteger),
    sa.Column("username", sa.Text),
    sa.Column("first_name", sa.Text),
    sa.Column("last_name", sa.Text),
    sa.Column("language_code", sa.Text),
    sa.Column("last_number", sa.Integer, nullable=False),
    sa.Column("correlation_id", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)
"""`last_number` is the number of the user's newest task; `/done N` uses numbers."""

tasks = sa.Table(
    "inbox_tasks",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("summary", sa.Text),
    sa.Column("deadline", sa.Text),
    sa.Column("project_hint", sa.Text),
    sa.Column("original_input", sa.Text),
    sa.Column("original_input_type", sa.Text),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("source_type", sa.Text, nullable=False),
    sa.Column("telegram_chat_id", sa.BigInteger, nullable=False),
    sa.Column("telegram_message_id", sa.BigInteger, nullable=False),
    sa.Column("correlation_id", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("tenant", "user", "number", name="uq_inbox_tasks_number"),
)

subtasks = sa.Table(
    "inbox_subtasks",
    metadata,
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("correlation_id", sa.Text, nullable=False),
)

records = sa.Table(
    "queue_idempotency",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("queue_name", sa.Text, nullable=False),
    sa.Column("idempotency_key", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("correlation_id", sa.Text, nullable=False),
    sa.Column("result_payload", sa.JSON(none_as_null=True)),
    sa.Column("created_at", sa.BigInteger, nullable=False, index=True),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("completed_at", sa.BigInteger),
    sa.Column("deleted_at", sa.BigInteger),
    sa.Index(
        "uq_queue_idempotency_active",
        "queue_name",
        "idempotency_key",
        unique=True,
        postgresql_where=ACTIVE,
        sqlite_where=ACTIVE,
    ),
)
"""One row per message, with the state of its effect; unique while not deleted."""

outbox = sa.Table(
    "inbox_outbox",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("chat_id", sa.BigInteger, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("parse_mode", sa.Text, nullable=False),
    sa.Column("correlation_id", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False, index=True),
)
"""Replies of a server without a bot, for the outbox page."""


def all_tables() -> Sequence[sa.Table]:
    """Return the tables that `backburner move` copies."""
    return metadata.sorted_tables
