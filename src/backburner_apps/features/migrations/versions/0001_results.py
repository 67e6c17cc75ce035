"""The results of jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_metadata = sa.MetaData()

sa.Table(
    "features_results",
    _metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("blob_id", sa.Text, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False, index=True),
    sa.Index("ix_features_results_owner", "tenant", "user"),
)


def upgrade() -> None:
    """Make the table."""
    _metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Drop it."""
    _metadata.drop_all(op.get_bind())
