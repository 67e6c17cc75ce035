"""How far a broker was told of dead letters."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

FAILED = sa.text("type = 'job.failed'")


def upgrade() -> None:
    """Remember places in the event log; find what failed without reading the rest."""
    op.create_table(
        "marks",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
    op.create_index(
        "events_failed",
        "events",
        ["seq"],
        sqlite_where=FAILED,
        postgresql_where=FAILED,
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_index("events_failed", "events")
    op.drop_table("marks")
