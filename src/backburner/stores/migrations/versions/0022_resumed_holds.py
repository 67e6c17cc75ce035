"""Holds of waiting jobs: the usage so far, and the amount to reserve again."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

TABLE = "holds"


def upgrade() -> None:
    """Add columns without a default: no row is rewritten."""
    op.add_column(TABLE, sa.Column("earlier", sa.BigInteger))
    op.add_column(TABLE, sa.Column("resumes_with", sa.BigInteger))


def downgrade() -> None:
    """Drop the columns; later usage of waiting jobs becomes overdraft."""
    op.drop_column(TABLE, "resumes_with")
    op.drop_column(TABLE, "earlier")
