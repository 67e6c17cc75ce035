"""What workers report with their heartbeats: running jobs, loop lag and memory."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

TYPES = {"running": sa.Integer, "lag_ms": sa.Integer, "memory": sa.BigInteger}


def upgrade() -> None:
    """Add the columns: empty until a worker of this release sends a heartbeat."""
    for name, of_type in TYPES.items():
        op.add_column("workers", sa.Column(name, of_type))


def downgrade() -> None:
    """Drop the columns."""
    for name in TYPES:
        op.drop_column("workers", name)
