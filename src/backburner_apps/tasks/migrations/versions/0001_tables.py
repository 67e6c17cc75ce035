"""
Requests, tasks, subtasks and idempotency keys.

Earlier releases created these tables when the service started, without a version
table: tables that exist already are left unchanged.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_metadata = sa.MetaData()

sa.Table(
    "tasks_requests",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("ai_request_id", sa.Text, unique=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("error", sa.JSON(none_as_null=True)),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("ended_at", sa.BigInteger),
)
sa.Table(
    "tasks_tasks",
    _metadata,
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
sa.Table(
    "tasks_subtasks",
    _metadata,
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("title", sa.Text, nullable=False),
)
sa.Table(
    "tasks_keys",
    _metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False, index=True),
    sa.Column("created_at", sa.BigInteger, nullable=False, index=True),
)


def upgrade() -> None:
    """Make the tables that are not there yet."""
    _metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Drop them."""
    _metadata.drop_all(op.get_bind())
