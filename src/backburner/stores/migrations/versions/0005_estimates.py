"""Estimates and shares of jobs; flows with a failed step."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add estimates and shares to jobs."""
    op.add_column("jobs", sa.Column("tokens", sa.BigInteger))
    op.add_column("jobs", sa.Column("model", sa.Text))
    op.add_column("jobs", sa.Column("share", sa.Text))
    op.add_column(
        "jobs", sa.Column("holds", sa.Integer, nullable=False, server_default="0")
    )
    # For existing flows it is unknown, so their steps are read.
    op.add_column(
        "flows",
        sa.Column("troubled", sa.Boolean, nullable=False, server_default=sa.true()),
    )


def downgrade() -> None:
    """Drop the columns."""
    for column in ("tokens", "model", "share", "holds"):
        op.drop_column("jobs", column)
    op.drop_column("flows", "troubled")
