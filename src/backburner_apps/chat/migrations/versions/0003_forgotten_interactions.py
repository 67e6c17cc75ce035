"""Interactions that their users had forgotten while the reply was being written."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

TABLE = "chat_discord_interactions"


def upgrade() -> None:
    """Add the column; processes of the earlier release do not set it."""
    op.add_column(
        TABLE,
        sa.Column("forgotten", sa.Boolean, nullable=False, server_default=sa.false()),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_column(TABLE, "forgotten")
