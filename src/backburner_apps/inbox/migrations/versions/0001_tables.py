"""
Users, tasks, subtasks, records of messages, and replies of servers without a bot.

Tables that exist already are left unchanged, so the revision can be run again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ACTIVE = sa.text("deleted_at IS NULL")
_metadata = sa.MetaData()

sa.Table(
    "inbox_users",
    _metadata,
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
sa.Table(
    "inbox_tasks",
    _metadata,
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
sa.Table(
    "inbox_subtasks",
    _metadata,
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("correlation_id", sa.Text, nullable=False),
)
sa.Table(
    "queue_idempotency",
    _metadata,
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
        postgresql_where=_ACTIVE,
        sqlite_where=_ACTIVE,
    ),
)
sa.Table(
    "inbox_outbox",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("chat_id", sa.BigInteger, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("parse_mode", sa.Text, nullable=False),
    sa.Column("correlation_id", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False, index=True),
)
_INDEX = (
    "CREATE UNIQUE INDEX IF NOT EXISTS uq_queue_idempotency_active "
    "ON queue_idempotency (queue_name, idempotency_key) WHERE deleted_at IS NULL"
)


def upgrade() -> None:
    """Make what is not there yet."""
    _metadata.create_all(op.get_bind())
    op.execute(_INDEX)


def downgrade() -> None:
    """Drop the tables."""
    _metadata.drop_all(op.get_bind())
