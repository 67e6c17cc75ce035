"""Replies in Discord, and the last messages of its channels."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_metadata = sa.MetaData()

sa.Table(
    "chat_discord_interactions",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("webhook", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False, index=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("shown", sa.Integer, nullable=False),
    sa.Column("editing", sa.Boolean, nullable=False),
    sa.Column("final", sa.Text),
    sa.Column("sent", sa.Integer, nullable=False),
    sa.Index("ix_chat_discord_interactions_user", "tenant", "user"),
)
sa.Table(
    "chat_discord_turns",
    _metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("channel", sa.Text, primary_key=True),
    sa.Column("interaction", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Index("ix_chat_discord_turns_user", "tenant", "user"),
    sa.Index("ix_chat_discord_turns_at", "tenant", "channel", "at"),
)


def upgrade() -> None:
    """Create the tables."""
    _metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Drop them."""
    _metadata.drop_all(op.get_bind())
