"""Metadata that callers store with their jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column without a default: no row is rewritten."""
    op.add_column("jobs", sa.Column("metadata", sa.Text))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("jobs", "metadata")
