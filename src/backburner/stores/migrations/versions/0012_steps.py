"""The number of a flow's steps, so that counting a batch need not read them."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the current number of steps."""
    steps = sa.Column("steps", sa.Integer, nullable=False, server_default="0")
    op.add_column("flows", steps)
    op.execute(
        "UPDATE flows SET steps = (SELECT count(*) FROM jobs"
        " WHERE jobs.flow = flows.seq AND jobs.flow IS NOT NULL)"
    )
    if op.get_bind().dialect.name != "sqlite":
        # No default: a process of the previous release fails instead of storing 0.
        op.alter_column("flows", "steps", server_default=None)


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("flows", "steps")
