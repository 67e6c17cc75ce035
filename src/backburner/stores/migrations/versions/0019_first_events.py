"""
Find an owner's jobs by their first events, which never change.

PostgreSQL writes an entry of every index of a row that changes its state, also if
the indexed columns stay the same. An index of owners on `jobs` was written at each
submission, claim and settlement; this one is written at submission alone.
"""

import sqlalchemy as sa
from alembic import op

from backburner.stores.migrations import create_index_live

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

OWNED = ("tenant", "user")
FIRST = sa.text("n = 1 AND job IS NOT NULL")


def upgrade() -> None:
    """Build the new index, then drop the one that it replaces."""
    create_index_live("events_first_by_owner", "events", [*OWNED, "job"], where=FIRST)
    op.drop_index("jobs_by_owner", "jobs", if_exists=True)


def downgrade() -> None:
    """Find jobs by their own columns again."""
    create_index_live("jobs_by_owner", "jobs", [*OWNED, "seq"])
    op.drop_index("events_first_by_owner", "events")
