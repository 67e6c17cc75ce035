"""What a job is expected to cost, and whose share it takes."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let a job say what it will cost."""
    op.add_column("jobs", sa.Column("tokens", sa.BigInteger))
    op.add_column("jobs", sa.Column("model", sa.Text))
    op.add_column("jobs", sa.Column("share", sa.Text))
    op.add_column(
        "jobs", sa.Column("holds", sa.Integer, nullable=False, server_default="0")
    )


def downgrade() -> None:
    """Forget it."""
    for column in ("tokens", "model", "share", "holds"):
        op.drop_column("jobs", column)
