"""Lanes to providers, and the permits of calls in progress."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "lanes",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("requests", sa.Integer),
        sa.Column("tokens", sa.BigInteger),
        sa.Column("at_once", sa.Integer),
        sa.Column("spacing", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("state", sa.Text, nullable=False),
    )
    op.create_table(
        "permits",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("lane", sa.Text, nullable=False),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_index("permits_by_lane", "permits", ["lane", "worker"])


def downgrade() -> None:
    """Drop both tables."""
    op.drop_table("permits")
    op.drop_table("lanes")
