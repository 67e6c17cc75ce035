"""The table of `features`, which refers to the blob with each job's result."""

from collections.abc import Sequence

import sqlalchemy as sa

from backburner import Owner, Transaction, erase_rows

metadata = sa.MetaData()

results = sa.Table(
    "features_results",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("blob_id", sa.Text, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False, index=True),
    sa.Index("ix_features_results_owner", "tenant", "user"),
)
"""Committed together with the blob: a job has at most one result, however often it
runs."""


def all_tables() -> Sequence[sa.Table]:
    """Return the tables that `backburner move` copies."""
    return metadata.sorted_tables


def erase(tx: Transaction, owner: Owner, limit: int) -> int:
    """Delete up to `limit` rows of a user; return how many were deleted."""
    return erase_rows(tx, results, owner, limit)
