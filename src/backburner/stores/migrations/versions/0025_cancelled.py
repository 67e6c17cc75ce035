"""
Find an owner's cancelled jobs.

They are few among an owner's jobs, and far apart. A claim or a settlement does not
write to this index: only a job that is cancelled has an entry.
"""

import sqlalchemy as sa
from alembic import op

from backburner.stores.migrations import create_index_live

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

CANCELLED = sa.text("state = 'cancelled'")


def upgrade() -> None:
    """Build the index while the table is in use."""
    create_index_live(
        "jobs_cancelled_by_owner", "jobs", ["tenant", "user", "seq"], where=CANCELLED
    )


def downgrade() -> None:
    """Find them among all jobs of the owner again."""
    op.drop_index("jobs_cancelled_by_owner", "jobs")
