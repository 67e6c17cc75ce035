"""Queues with limits, and schedules."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

RUNNING = sa.text("state = 'running'")


def upgrade() -> None:
    """Create both tables; add the queue to the index of running jobs."""
    op.create_table(
        "queues",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("concurrency", sa.Integer),
        sa.Column("per_worker", sa.Integer),
        sa.Column("rate", sa.Integer),
        sa.Column("per", sa.BigInteger, nullable=False),
        sa.Column("window_at", sa.BigInteger, nullable=False),
        sa.Column("started", sa.Integer, nullable=False),
        sa.Column("limited_until", sa.BigInteger),
        sa.Column("closed", sa.BigInteger, nullable=False),
        sa.Column("told", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "schedules",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("capability", sa.Text, nullable=False),
        sa.Column("cron", sa.Text, nullable=False),
        sa.Column("timezone", sa.Text, nullable=False),
        sa.Column("missed", sa.Text, nullable=False),
        sa.Column("next_at", sa.BigInteger, nullable=False),
        sa.Column("last_at", sa.BigInteger),
    )
    # Include the state, so that jobs are counted without reading their rows.
    _index_running(["worker", "queue", "state"])


def downgrade() -> None:
    """Drop both tables."""
    _index_running(["worker"])
    op.drop_table("schedules")
    op.drop_table("queues")


def _index_running(columns: list[str]) -> None:
    op.drop_index("jobs_running", "jobs")
    op.create_index(
        "jobs_running",
        "jobs",
        columns,
        sqlite_where=RUNNING,
        postgresql_where=RUNNING,
    )
