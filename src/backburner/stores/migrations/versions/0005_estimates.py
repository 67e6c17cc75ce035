"""What a job is expected to cost, whose share it takes; flows in trouble."""

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
    # Of flows that are there nobody knows it: they are looked at.
    op.add_column(
        "flows",
        sa.Column("troubled", sa.Boolean, nullable=False, server_default=sa.true()),
    )


def downgrade() -> None:
    """Forget it."""
    for column in ("tokens", "model", "share", "holds"):
        op.drop_column("jobs", column)
    op.drop_column("flows", "troubled")
