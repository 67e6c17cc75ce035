"""How long steps and model calls took."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

TABLES = ("step_results", "usages")


def upgrade() -> None:
    """Add the columns: empty for steps and calls of earlier releases."""
    for table in TABLES:
        op.add_column(table, sa.Column("duration_ms", sa.BigInteger))


def downgrade() -> None:
    """Drop the columns."""
    for table in TABLES:
        op.drop_column(table, "duration_ms")
