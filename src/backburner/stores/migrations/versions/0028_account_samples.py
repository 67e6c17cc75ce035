"""Samples of the accounts of budgets, from which their use over time is shown."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; it is empty until upkeep of this release runs."""
    op.create_table(
        "account_samples",
        sa.Column("account", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("slot", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("settled", sa.BigInteger, nullable=False),
        sa.Column("held", sa.BigInteger, nullable=False),
        sa.Column("ceiling", sa.BigInteger, nullable=False),
        sa.Column("window_end", sa.BigInteger, nullable=False),
    )
    op.create_index("account_samples_by_end", "account_samples", ["window_end"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("account_samples")
