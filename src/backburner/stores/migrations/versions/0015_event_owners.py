"""
Store each event's owner, and let applications publish events under topics.

Events that were written before this, or are written by a process of the release before
it, have no owner yet. Readers find them by their number, and upkeep fills them in.
"""

import sqlalchemy as sa
from alembic import op

from backburner.stores.migrations import create_index_live

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

COLUMNS = ("tenant", "user", "topic")
OF_QUEUES = sa.text("queue IS NOT NULL")
WITHOUT_OWNER = sa.text("tenant IS NULL AND queue IS NULL")
PUBLISHED = sa.text("topic IS NOT NULL")


def upgrade() -> None:
    """Add the columns without rewriting the table, then their indexes."""
    present = {
        column["name"] for column in sa.inspect(op.get_bind()).get_columns("events")
    }
    for name in COLUMNS:
        if name not in present:  # the indexes below commit; this may run again
            op.add_column("events", sa.Column(name, sa.Text))
    create_index_live("events_by_owner", "events", ["tenant", "user", "seq"])
    create_index_live("events_without_owner", "events", ["seq"], where=WITHOUT_OWNER)
    create_index_live("events_by_queue", "events", ["seq"], where=OF_QUEUES)
    create_index_live(
        "events_by_topic",
        "events",
        ["tenant", "topic", "user", "seq"],
        where=PUBLISHED,
    )
    create_index_live("events_published", "events", ["seq"], where=PUBLISHED)
    op.drop_index("events_of_queues", "events", if_exists=True)


def downgrade() -> None:
    """Drop them, with the events that earlier releases cannot show."""
    create_index_live("events_of_queues", "events", ["at"], where=OF_QUEUES)
    op.execute("DELETE FROM events WHERE topic IS NOT NULL")
    for name in (
        "events_published",
        "events_by_topic",
        "events_by_queue",
        "events_without_owner",
        "events_by_owner",
    ):
        op.drop_index(name, "events")
    for name in COLUMNS:
        op.drop_column("events", name)
