"""The position up to which dead letters were exported to a broker."""

import sqlalchemy as sa
from alembic import op

from backburner.stores.migrations import create_index_live

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

FAILED = sa.text("type = 'job.failed'")


def upgrade() -> None:
    """Create the table of positions, and an index of failures in the event log."""
    create_index_live("events_failed", "events", ["seq"], where=FAILED)
    op.create_table(
        "marks",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text),
        sa.Column("until", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop both."""
    op.drop_index("events_failed", "events")
    op.drop_table("marks")
