"""Personalities, memories, requests and limits."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_metadata = sa.MetaData()

sa.Table(
    "chat_personalities",
    _metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("system_prompt", sa.Text, nullable=False),
    sa.Column("model", sa.Text),
    sa.Column("temperature", sa.Float),
    sa.Column("memory_limit", sa.Integer),
    sa.Column("shared_memory", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)
sa.Table(
    "chat_memories",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("personality", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("vector", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Index(
        "ix_chat_memories_owner", "tenant", "personality", "user", "created_at", "id"
    ),
)
sa.Table(
    "chat_requests",
    _metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("flow_id", sa.Text, nullable=False),
    sa.Column("job_id", sa.Text, nullable=False, unique=True),
    sa.Column("created_at", sa.BigInteger, nullable=False, index=True),
    sa.Column("reply", sa.JSON(none_as_null=True)),
)
sa.Table(
    "chat_windows",
    _metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, primary_key=True),
    sa.Column("minute", sa.BigInteger, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
)
sa.Table(
    "chat_forgotten",
    _metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, primary_key=True),
    sa.Column("personality", sa.Text, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
)


def upgrade() -> None:
    """Create the tables."""
    _metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Drop them."""
    _metadata.drop_all(op.get_bind())
