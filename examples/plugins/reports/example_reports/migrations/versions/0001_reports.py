"""Reports."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "reports_reports",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("blob", sa.Text),
        sa.Column("state", sa.Text),
    )
