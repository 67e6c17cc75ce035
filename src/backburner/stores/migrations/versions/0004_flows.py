"""Flows, batches and callbacks; events of other subjects than jobs."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LIVE = "state IN ('blocked','scheduled','queued','running')"
JOB_COLUMNS = ("flow", "step", "needs", "open", "batch", "callback", "traceparent")


def upgrade() -> None:
    """Create the tables, and add dependencies, groups and callbacks to jobs."""
    _create_flows()
    _create_batches()
    op.create_table(
        "edges",
        sa.Column("prerequisite", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("dependent", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("continues", sa.Boolean, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("edges_by_dependent", "edges", ["dependent"])
    op.create_table(
        "endpoints",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("rotated_at", sa.BigInteger),
        sa.Column("disabled_at", sa.BigInteger),
        sa.Column("disabled_reason", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "endpoints_by_url", "endpoints", ["tenant", "user", "url"], unique=True
    )
    _extend_jobs()
    _free_events()


def downgrade() -> None:
    """Drop everything except plain jobs."""
    steps = "SELECT seq FROM jobs WHERE flow IS NOT NULL"
    op.execute(f"DELETE FROM events WHERE job IS NULL OR job IN ({steps})")  # noqa: S608
    op.execute("DELETE FROM jobs WHERE flow IS NOT NULL")
    for column in ("flow", "batch"):
        op.drop_index(f"events_by_{column}", "events")
    if op.get_bind().dialect.name == "sqlite":
        _rebuild_events(sa.Column("job", sa.BigInteger, nullable=False))
    else:
        op.alter_column("events", "job", nullable=False)
        for added in _subjects():
            op.drop_column("events", added.name)
    for name in ("step", "batch", "batch_live"):
        op.drop_index(f"jobs_by_{name}", "jobs")
    for column in JOB_COLUMNS:
        op.drop_column("jobs", column)
    for table in ("endpoints", "edges", "batches", "flows"):
        op.drop_table(table)


def _create_flows() -> None:
    op.create_table(
        "flows",
        *_group_columns(),
        sa.Column("batch", sa.BigInteger),
        sa.Column("deadline", sa.BigInteger),
        sa.Column("active", sa.Integer, nullable=False),
        sa.CheckConstraint(
            "state IN ('running','succeeded','failed','cancelled')", name="flows_state"
        ),
        sa.CheckConstraint(
            "(state = 'running') = (finished_at IS NULL)", name="flows_final_has_end"
        ),
        sqlite_autoincrement=True,
    )
    _index_group("flows")
    if op.get_bind().dialect.name == "postgresql":
        # Updated at every step's end without a change of indexed columns: leave space
        # on the page for the new row.
        op.execute("ALTER TABLE flows SET (fillfactor = 60)")
    _index("flows_by_batch", "flows", ["batch", "state"], "batch IS NOT NULL")


def _create_batches() -> None:
    zero = sa.text("0")
    op.create_table(
        "batches",
        *_group_columns(),
        sa.Column("expected", sa.Integer),
        sa.Column("sealed", sa.Boolean, nullable=False),
        sa.Column("completion", sa.Text),
        sa.Column("counts", sa.Text),
        sa.Column("told", sa.Integer, nullable=False, server_default=zero),
        sa.Column("told_at", sa.BigInteger, nullable=False, server_default=zero),
        sa.CheckConstraint("state IN ('open','finished')", name="batches_state"),
        sa.CheckConstraint(
            "(state = 'open') = (finished_at IS NULL)", name="batches_final_has_end"
        ),
        sqlite_autoincrement=True,
    )
    _index_group("batches")
    _index("batches_open", "batches", ["sealed"], "state = 'open'")


def _group_columns() -> Sequence[sa.Column[object]]:
    return (
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column(
            "generation", sa.Integer, nullable=False, server_default=sa.text("0")
        ),
        sa.Column("events", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger),
        sa.Column("callback", sa.Text),
        sa.Column("tags", sa.Text),
        sa.Column("request_id", sa.Text),
        sa.Column("traceparent", sa.Text),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("body_hash", sa.Text),
    )


def _index_group(table: str) -> None:
    _index(
        f"{table}_idempotency",
        table,
        ["tenant", "user", "idempotency_key"],
        "idempotency_key IS NOT NULL",
        unique=True,
    )
    _index(f"{table}_finished", table, ["finished_at"], "finished_at IS NOT NULL")


def _extend_jobs() -> None:
    zero = sa.text("0")
    for column in (
        sa.Column("flow", sa.BigInteger),
        sa.Column("step", sa.Text),
        sa.Column("needs", sa.Integer, nullable=False, server_default=zero),
        sa.Column("open", sa.Integer, nullable=False, server_default=zero),
        sa.Column("batch", sa.BigInteger),
        sa.Column("callback", sa.Text),
        sa.Column("traceparent", sa.Text),
    ):
        op.add_column("jobs", column)
    _index("jobs_by_step", "jobs", ["flow", "step"], "flow IS NOT NULL", unique=True)
    # Steps are found by their flow, which knows its batch, because every move of a job
    # writes every index. Whether a batch has unfinished members is checked often.
    alone = "batch IS NOT NULL AND flow IS NULL"
    _index("jobs_by_batch", "jobs", ["batch"], alone)
    _index("jobs_by_batch_live", "jobs", ["batch"], f"{alone} AND {LIVE}")


def _free_events() -> None:
    """Allow events of a flow, a batch or a queue instead of a job."""
    if op.get_bind().dialect.name == "sqlite":
        _rebuild_events(sa.Column("job", sa.BigInteger), *_subjects())
    else:
        op.alter_column("events", "job", nullable=True)
        for column in _subjects():
            op.add_column("events", column)
    for subject in ("flow", "batch"):
        _index(
            f"events_by_{subject}",
            "events",
            [subject, "n"],
            f"{subject} IS NOT NULL",
            unique=True,
        )


def _subjects() -> Sequence[sa.Column[object]]:
    return (
        sa.Column("flow", sa.BigInteger),
        sa.Column("batch", sa.BigInteger),
        sa.Column("queue", sa.Text),
    )


def _rebuild_events(job: sa.Column[int], *more: sa.Column[object]) -> None:
    """Copy the table, because SQLite cannot change NOT NULL; continue the numbering."""
    op.drop_index("events_by_job", "events")
    op.rename_table("events", "events_before")
    op.create_table(
        "events",
        sa.Column("seq", KEY, primary_key=True),
        job,
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("data", sa.Text),
        *more,
        sqlite_autoincrement=True,
    )
    op.execute(
        "INSERT INTO events (seq, job, n, type, at, data)"
        " SELECT seq, job, n, type, at, data FROM events_before"
    )
    op.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
    op.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT 'events', seq"
        "  FROM sqlite_sequence WHERE name = 'events_before'"
    )
    op.drop_table("events_before")
    op.create_index("events_by_job", "events", ["job", "n"], unique=True)


def _index(
    name: str,
    table: str,
    columns: Sequence[str],
    where: str,
    *,
    unique: bool = False,
) -> None:
    op.create_index(
        name,
        table,
        columns,
        unique=unique,
        sqlite_where=sa.text(where),
        postgresql_where=sa.text(where),
    )
