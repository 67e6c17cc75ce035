"""Fair shares of a queue, and a cap on waiting jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

READY: list[str | sa.TextClause] = ["queue", sa.text("priority DESC"), "rank"]
WAITS = sa.text("share IS NOT NULL AND state IN ('blocked','scheduled','queued')")

# Existing waiting jobs are ranked as if submitted now, each user's in their order.
RANK = """
UPDATE jobs SET rank = ranked.rank
  FROM (SELECT seq, 1000 * (row_number() OVER (
                 PARTITION BY queue, priority, tenant, coalesce(share, "user")
                     ORDER BY seq) - 1) AS rank
          FROM jobs WHERE finished_at IS NULL) AS ranked
 WHERE jobs.seq = ranked.seq
"""
SHARES = """
INSERT INTO shares (queue, priority, tenant, name, finish, taken)
SELECT queue, priority, tenant, coalesce(share, "user"), 1000 * count(*),
       1000 * count(*)
  FROM jobs WHERE finished_at IS NULL
 GROUP BY queue, priority, tenant, coalesce(share, "user")
"""


def upgrade() -> None:
    """Create the shares; rank waiting jobs by them."""
    op.add_column("queues", sa.Column("weights", sa.Text))
    op.add_column("queues", sa.Column("waiting", sa.Integer))
    op.create_table(
        "fronts",
        sa.Column("queue", sa.Text, primary_key=True),
        sa.Column("priority", sa.Integer, primary_key=True),
        sa.Column("front", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "shares",
        sa.Column("queue", sa.Text, primary_key=True),
        sa.Column("priority", sa.Integer, primary_key=True),
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("finish", sa.BigInteger, nullable=False),
        sa.Column("taken", sa.BigInteger, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        _index_ready([*READY, "seq"])
        # Updated at every claim and submission without a change of indexed columns:
        # leave space on the pages for new rows.
        for table in ("fronts", "shares"):
            op.execute(
                f"ALTER TABLE {table} SET (fillfactor = 50,"
                " autovacuum_vacuum_scale_factor = 0,"
                " autovacuum_vacuum_threshold = 1000)"
            )
    # Only jobs with a named share are included; those of a capped queue all have one.
    op.create_index(
        "jobs_waiting",
        "jobs",
        ["queue", "tenant", "share"],
        sqlite_where=WAITS,
        postgresql_where=WAITS,
    )
    op.execute(RANK)
    op.execute(SHARES)


def downgrade() -> None:
    """Restore the order of submission."""
    op.execute("UPDATE jobs SET rank = seq")
    if op.get_bind().dialect.name == "postgresql":
        _index_ready(READY)
    op.drop_index("jobs_waiting", "jobs")
    op.drop_table("shares")
    op.drop_table("fronts")
    op.drop_column("queues", "waiting")
    op.drop_column("queues", "weights")


def _index_ready(columns: list[str | sa.TextClause]) -> None:
    """Order jobs of equal rank by key, as every index of SQLite does."""
    op.drop_index("jobs_ready", "jobs")
    op.create_index(
        "jobs_ready", "jobs", columns, postgresql_where=sa.text("state = 'queued'")
    )
