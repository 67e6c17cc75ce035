"""Find the events of queues and lanes by their age, so that old ones can be deleted."""

import sqlalchemy as sa
from alembic import op

from backburner.stores.migrations import create_index_live

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Index them alone: they are few beside the events of jobs."""
    where = sa.text("queue IS NOT NULL")
    create_index_live("events_of_queues", "events", ["at"], where=where)


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("events_of_queues", "events")
