"""Model usage of jobs, one row per call."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create a table without references to jobs, which are deleted earlier."""
    op.create_table(
        "usages",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("job", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("capability", sa.Text, nullable=False),
        sa.Column("tags", sa.Text),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("provider", sa.Text),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.BigInteger),
        sa.Column("price_version", sa.Text),
        sa.Column("late", sa.Boolean, nullable=False),
        sa.CheckConstraint(
            "input_tokens >= 0 AND output_tokens >= 0 AND cached_tokens >= 0"
            " AND cached_tokens <= input_tokens",
            name="usages_counts",
        ),
        sa.CheckConstraint(
            "cost IS NULL OR (cost >= 0 AND price_version IS NOT NULL)",
            name="usages_cost",
        ),
        sqlite_autoincrement=True,
    )
    # A call is counted once, however often it is reported.
    op.create_index("usages_by_call", "usages", ["job", "epoch", "n"], unique=True)
    op.create_index("usages_by_time", "usages", ["tenant", "at"])
    op.create_index("usages_by_user", "usages", ["tenant", "user", "at"])
    op.create_index("usages_by_age", "usages", ["at"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("usages")
