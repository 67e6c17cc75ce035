"""Jobs, their events and workers."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = ("backburner",)
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables, and partial indexes without ended jobs."""
    _create_jobs()
    _create_job_indexes()
    op.create_table(
        "events",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("job", sa.BigInteger, nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("data", sa.Text),
        # A cursor of a reader must never refer to a newer event.
        sqlite_autoincrement=True,
    )
    op.create_index("events_by_job", "events", ["job", "n"], unique=True)
    op.create_table(
        "workers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("queues", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("beat_at", sa.BigInteger, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        _vacuum_often()


def downgrade() -> None:
    """Drop all tables."""
    op.drop_table("workers")
    op.drop_table("events")
    op.drop_table("jobs")


def _vacuum_often() -> None:
    """
    Vacuum after a number of changes rather than a share of the table.

    With a million finished jobs, a fifth of them would be long after claims have slowed
    down. A worker's row is written at every heartbeat and no changed column is indexed,
    so space is left to keep it on its page.
    """
    op.execute(
        "ALTER TABLE jobs SET (autovacuum_vacuum_scale_factor = 0.01,"
        " autovacuum_vacuum_threshold = 1000,"
        " autovacuum_analyze_scale_factor = 0.02,"
        " autovacuum_analyze_threshold = 1000,"
        " autovacuum_vacuum_cost_delay = 0)"
    )
    op.execute(
        "ALTER TABLE events SET (autovacuum_vacuum_scale_factor = 0.02,"
        " autovacuum_vacuum_threshold = 1000,"
        " autovacuum_vacuum_insert_scale_factor = 0.05)"
    )
    op.execute(
        "ALTER TABLE workers SET (fillfactor = 50,"
        " autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200)"
    )


def _create_jobs() -> None:
    zero = sa.text("0")
    op.create_table(
        "jobs",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("capability", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("rank", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False, server_default=zero),
        sa.Column("attempt", sa.Integer, nullable=False, server_default=zero),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("crashes", sa.Integer, nullable=False, server_default=zero),
        sa.Column("throttled", sa.BigInteger, nullable=False, server_default=zero),
        sa.Column("events", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("token", sa.Text),
        sa.Column("worker", sa.Text),
        sa.Column("run_at", sa.BigInteger),
        sa.Column("start_by", sa.BigInteger),
        sa.Column("deadline", sa.BigInteger),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ready_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("finished_at", sa.BigInteger),
        sa.Column("input", sa.Text, nullable=False),
        sa.Column("output", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("error_code", sa.Text),
        sa.Column("fingerprint", sa.Text),
        sa.Column("progress", sa.Text),
        sa.Column("tags", sa.Text),
        sa.Column("request_id", sa.Text),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("body_hash", sa.Text),
        sa.CheckConstraint(
            "state IN ('blocked','scheduled','queued','running',"
            "'succeeded','failed','cancelled')",
            name="jobs_state",
        ),
        sa.CheckConstraint(
            "(state = 'running') = (token IS NOT NULL)", name="jobs_running_has_token"
        ),
        sa.CheckConstraint(
            "(token IS NULL) = (worker IS NULL)", name="jobs_token_has_worker"
        ),
        sa.CheckConstraint(
            "(state IN ('succeeded','failed','cancelled')) = (finished_at IS NOT NULL)",
            name="jobs_final_has_end",
        ),
        sa.CheckConstraint(
            "state <> 'succeeded' OR output IS NOT NULL", name="jobs_success_has_output"
        ),
        sa.CheckConstraint(
            "state <> 'scheduled' OR run_at IS NOT NULL", name="jobs_scheduled_has_time"
        ),
        # A move of a pruned job must not match another job.
        sqlite_autoincrement=True,
    )


def _create_job_indexes() -> None:
    _index(
        "jobs_ready", ["queue", sa.text("priority DESC"), "rank"], "state = 'queued'"
    )
    _index("jobs_running", ["worker"], "state = 'running'")
    _index("jobs_blocked", ["queue"], "state = 'blocked'")
    _index("jobs_due", ["run_at"], "state = 'scheduled'")
    _index(
        "jobs_expiring",
        ["expires_at"],
        "expires_at IS NOT NULL AND state IN ('blocked','scheduled','queued')",
    )
    _index("jobs_finished", ["finished_at"], "finished_at IS NOT NULL")
    _index("jobs_failed", ["fingerprint"], "state = 'failed'")
    _index(
        "jobs_idempotency",
        ["tenant", "user", "idempotency_key"],
        "idempotency_key IS NOT NULL",
        unique=True,
    )


def _index(
    name: str,
    columns: Sequence[str | sa.TextClause],
    where: str,
    *,
    unique: bool = False,
) -> None:
    op.create_index(
        name,
        "jobs",
        columns,
        unique=unique,
        sqlite_where=sa.text(where),
        postgresql_where=sa.text(where),
    )
