"""Results of steps within handlers."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, with a unique index by job."""
    op.create_table(
        "step_results",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
        ),
        sa.Column("job", sa.BigInteger, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("step_results_of_job", "step_results", ["job", "key"], unique=True)


def downgrade() -> None:
    """Drop the results: handlers compute them again."""
    op.drop_table("step_results")
