"""
Jobs that wait without a slot: their state, what they wait for, and signals.

SQLite cannot change a check: its text is replaced, as revision 0011 does. Where SQLite
refuses that, the table is copied.
"""

import sqlalchemy as sa
from alembic import op

from backburner.stores.migrations import create_index_live

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
STATES = (
    "blocked",
    "scheduled",
    "queued",
    "running",
    "succeeded",
    "failed",
    "cancelled",
)
WAITING = sa.text("state = 'waiting'")
OPEN_QUESTION = sa.text("kind = 'question' AND outcome IS NULL")


def upgrade() -> None:
    """Add the column, the state, the index of waiting jobs and the table of waits."""
    bind = op.get_bind()
    present = {column["name"] for column in sa.inspect(bind).get_columns("jobs")}
    if "wait" not in present:  # the index below commits; this may run again
        op.add_column("jobs", sa.Column("wait", sa.Text))
    create_index_live("jobs_suspended", "jobs", ["run_at"], where=WAITING)
    _change_states(STATES, (*STATES, "waiting"))
    op.create_table(
        "waits",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("job", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("until", sa.BigInteger),
        sa.Column("asked_at", sa.BigInteger),
        sa.Column("question", sa.Text),
        sa.Column("outcome", sa.Text),
        sa.Column("value", sa.Text),
        sa.Column("decided_at", sa.BigInteger),
        sqlite_autoincrement=True,
    )
    names = ["job", "name", "generation"]
    op.create_index("waits_of_job", "waits", names, unique=True)
    op.create_index(
        "waits_open_questions",
        "waits",
        ["seq"],
        sqlite_where=OPEN_QUESTION,
        postgresql_where=OPEN_QUESTION,
    )


def downgrade() -> None:
    """Queue waiting jobs, and drop the waits: handlers wait again."""
    op.drop_table("waits")
    op.execute("UPDATE jobs SET state = 'queued' WHERE state = 'waiting'")
    _change_states((*STATES, "waiting"), STATES)
    op.drop_index("jobs_suspended", "jobs")
    op.drop_column("jobs", "wait")


def _change_states(old: tuple[str, ...], new: tuple[str, ...]) -> None:
    if op.get_bind().dialect.name == "sqlite":
        _replace_check(old, new)
        return
    # Not validated while the table is locked: all existing rows are valid.
    listed = ",".join(f"'{state}'" for state in new)
    op.execute("ALTER TABLE jobs DROP CONSTRAINT IF EXISTS jobs_state")
    op.execute(
        f"ALTER TABLE jobs ADD CONSTRAINT jobs_state CHECK (state IN ({listed}))"
        " NOT VALID"
    )


def _replace_check(old: tuple[str, ...], new: tuple[str, ...]) -> None:
    bind = op.get_bind()
    text = bind.exec_driver_sql(
        "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'jobs'"
    ).scalar_one()
    wanted = text
    for wording in (_compared, _listed):
        wanted = wanted.replace(wording(old), _compared(new))
    if wanted == text:
        raise RuntimeError("the check of jobs.state was not found: its text differs")
    bind.exec_driver_sql("PRAGMA writable_schema = ON")
    if not bind.exec_driver_sql("PRAGMA writable_schema").scalar_one():
        _copy_jobs(text, wanted)  # a defensive SQLite, as Apple's is
        return
    version = bind.exec_driver_sql("PRAGMA schema_version").scalar_one()
    try:
        bind.exec_driver_sql(
            "UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = 'jobs'",
            (wanted,),
        )
        bind.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    finally:
        bind.exec_driver_sql("PRAGMA writable_schema = OFF")


def _copy_jobs(text: str, wanted: str) -> None:
    """Copy the table into one with the new check, with its indexes."""
    bind = op.get_bind()
    indexes = (
        bind.exec_driver_sql(
            "SELECT sql FROM sqlite_master"
            " WHERE type = 'index' AND tbl_name = 'jobs' AND sql IS NOT NULL"
        )
        .scalars()
        .all()
    )
    last = bind.exec_driver_sql(
        "SELECT seq FROM sqlite_sequence WHERE name = 'jobs'"
    ).scalar()
    bind.exec_driver_sql("PRAGMA legacy_alter_table = ON")
    bind.exec_driver_sql("ALTER TABLE jobs RENAME TO jobs_before")
    bind.exec_driver_sql(wanted)
    bind.exec_driver_sql("INSERT INTO jobs SELECT * FROM jobs_before")
    bind.exec_driver_sql("DROP TABLE jobs_before")
    bind.exec_driver_sql("PRAGMA legacy_alter_table = OFF")
    for index in indexes:
        bind.exec_driver_sql(index)
    if last is not None:  # numbers of pruned jobs are not used again
        bind.exec_driver_sql(
            "UPDATE sqlite_sequence SET seq = ? WHERE name = 'jobs'", (last,)
        )
    del text


def _listed(states: tuple[str, ...]) -> str:
    names = ",".join(f"'{state}'" for state in states)
    return f"(state IN ({names}))"


def _compared(states: tuple[str, ...]) -> str:
    tests = " OR ".join(f"state = '{state}'" for state in states)
    return f"({tests})"
