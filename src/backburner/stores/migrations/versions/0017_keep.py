"""Separate indexes for jobs and flows whose queue has its own retention."""

import sqlalchemy as sa
from alembic import op

from backburner.stores.migrations import create_index_live

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

OVER = "finished_at IS NOT NULL"
GENERAL = sa.text(f"{OVER} AND kept IS NULL")
OWN = sa.text(f"{OVER} AND kept IS NOT NULL")


def upgrade() -> None:
    """Put each ended job and flow into one of two indexes."""
    for table in ("jobs", "flows"):
        create_index_live(f"{table}_ended", table, ["finished_at"], where=GENERAL)
    kept = ["queue", "state", "kept", "finished_at", "seq"]
    create_index_live("jobs_kept", "jobs", kept, where=OWN)
    kept = ["kept", "troubled", "finished_at", "seq"]
    create_index_live("flows_kept", "flows", kept, where=OWN)
    for table in ("jobs", "flows"):
        op.drop_index(f"{table}_finished", table, if_exists=True)


def downgrade() -> None:
    """Restore one index for all."""
    for table in ("flows", "jobs"):
        op.drop_index(f"{table}_kept", table)
        op.drop_index(f"{table}_ended", table)
        create_index_live(
            f"{table}_finished", table, ["finished_at"], where=sa.text(OVER)
        )
