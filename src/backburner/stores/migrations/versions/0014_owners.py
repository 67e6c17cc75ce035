"""Indexes of an owner's rows; totals of ended jobs by queue."""

import sqlalchemy as sa
from alembic import op

from backburner.stores.migrations import create_index_live

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OWNED = ("tenant", "user")
FAILED = sa.text("state = 'failed'")
ALONE = sa.text("batch IS NOT NULL AND flow IS NULL")
REPLACED = {
    # Blocked steps are found by their flow, which is running.
    "jobs_blocked": ("jobs", ["queue"], "state = 'blocked'"),
    "jobs_failed": ("jobs", ["fingerprint"], "state = 'failed'"),
    "jobs_by_batch": ("jobs", ["batch"], ALONE.text),
    "jobs_by_batch_live": (
        "jobs",
        ["batch"],
        f"{ALONE.text} AND state IN ('blocked','scheduled','queued','running')",
    ),
    # The predicate made every admission write all indexes of the account.
    "accounts_held": ("accounts", ["seq"], "held > 0"),
    "usages_by_age": ("usages", ["at"], None),
}
"""The indexes that are dropped: their tables, columns and conditions."""


def upgrade() -> None:
    """Add the indexes, then drop those that they replace."""
    for table in ("jobs", "flows", "batches"):
        create_index_live(f"{table}_by_owner", table, [*OWNED, "seq"])
    create_index_live(
        "jobs_failed_by_owner", "jobs", [*OWNED, "fingerprint", "seq"], where=FAILED
    )
    create_index_live("jobs_by_batch_state", "jobs", ["batch", "state"], where=ALONE)
    running = sa.text("state = 'running'")
    create_index_live("flows_running", "flows", list(OWNED), where=running)
    released = sa.text("kind = 'released'")
    create_index_live("entries_released", "entries", ["hold"], where=released)
    for name, (table, _, _) in REPLACED.items():
        op.drop_index(name, table, if_exists=True)
    _create_totals()
    # Its index is created by revision 0017: a live index comes first in its revision.
    op.add_column("queues", sa.Column("keep", sa.Text))
    op.add_column("jobs", sa.Column("kept", sa.SmallInteger))
    op.add_column("flows", sa.Column("kept", sa.Text))


def _create_totals() -> None:
    """Create the table to which settlements add rows, until upkeep sums them up."""
    op.create_table(
        "totals",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("n", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "ALTER TABLE totals SET (autovacuum_vacuum_scale_factor = 0,"
            " autovacuum_vacuum_threshold = 10000)"
        )


def downgrade() -> None:
    """Restore the earlier indexes, and drop the totals."""
    for table, column in (("flows", "kept"), ("jobs", "kept"), ("queues", "keep")):
        op.drop_column(table, column)
    op.drop_table("totals")
    op.drop_index("entries_released", "entries")
    op.drop_index("flows_running", "flows")
    op.drop_index("jobs_by_batch_state", "jobs")
    op.drop_index("jobs_failed_by_owner", "jobs")
    for table in ("jobs", "flows", "batches"):
        op.drop_index(f"{table}_by_owner", table)
    for name, (table, columns, where) in REPLACED.items():
        create_index_live(
            name, table, columns, where=None if where is None else sa.text(where)
        )
