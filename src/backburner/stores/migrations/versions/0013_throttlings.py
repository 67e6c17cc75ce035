"""An index of the events of queues and lanes by age, for deleting old ones."""

import sqlalchemy as sa
from alembic import op

from backburner.stores.migrations import create_index_live

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create an index of these events only, because they are few."""
    where = sa.text("queue IS NOT NULL")
    create_index_live("events_of_queues", "events", ["at"], where=where)


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("events_of_queues", "events")
