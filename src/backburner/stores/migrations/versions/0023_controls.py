"""Controls for operators: draining workers, paused and saved schedules."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, including the owner of saved schedules."""
    op.add_column("workers", _mark("draining"))
    op.add_column("schedules", _mark("paused"))
    for name in ("tenant", "user", "input"):
        op.add_column("schedules", sa.Column(name, sa.Text))


def downgrade() -> None:
    """Drop the columns and the saved schedules."""
    op.execute("DELETE FROM schedules WHERE tenant IS NOT NULL")
    for name in ("input", "user", "tenant", "paused"):
        op.drop_column("schedules", name)
    op.drop_column("workers", "draining")


def _mark(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())
