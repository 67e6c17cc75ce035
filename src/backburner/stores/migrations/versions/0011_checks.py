"""
Checks of states that are cheap for SQLite.

For `state IN (…)` with more than two values in a CHECK, SQLite fills a temporary table
for every row that is written.
"""

from collections.abc import Callable, Sequence

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

FINAL = ("succeeded", "failed", "cancelled")
CHECKED = {
    "jobs": (("blocked", "scheduled", "queued", "running", *FINAL), FINAL),
    "flows": (("running", *FINAL),),
}
"""The states in the checks of each table."""

Wording = Callable[[Sequence[str]], str]


def upgrade() -> None:
    """Compare with each state separately; PostgreSQL needs no change."""
    _rewrite(_listed, _compared)


def downgrade() -> None:
    """Restore the lists."""
    _rewrite(_compared, _listed)


def _listed(states: Sequence[str]) -> str:
    names = ",".join(f"'{state}'" for state in states)
    return f"(state IN ({names}))"


def _compared(states: Sequence[str]) -> str:
    tests = " OR ".join(f"state = '{state}'" for state in states)
    return f"({tests})"


def _rewrite(old: Wording, new: Wording) -> None:
    """
    Change the text of checks, as SQLite's manual describes.

    Old and new text accept the same rows, so that no row must be checked or copied.
    """
    bind = op.get_bind()
    if bind.dialect.name != "sqlite":
        return
    version = bind.exec_driver_sql("PRAGMA schema_version").scalar_one()
    bind.exec_driver_sql("PRAGMA writable_schema = ON")
    if not bind.exec_driver_sql("PRAGMA writable_schema").scalar_one():
        return  # a defensive SQLite, such as Apple's: the old text stays
    try:
        for table, lists in CHECKED.items():
            for states in lists:
                bind.exec_driver_sql(
                    "UPDATE sqlite_master SET sql = replace(sql, ?, ?)"
                    " WHERE type = 'table' AND name = ?",
                    (old(states), new(states), table),
                )
        bind.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    finally:
        bind.exec_driver_sql("PRAGMA writable_schema = OFF")
