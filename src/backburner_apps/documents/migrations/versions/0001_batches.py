"""Batches and files."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_metadata = sa.MetaData()

sa.Table(
    "documents_batches",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("file_count", sa.Integer, nullable=False),
    sa.Column("requested", sa.Integer, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("requested_at", sa.BigInteger, nullable=False),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("closed_at", sa.BigInteger),
    sa.Column("completed_at", sa.BigInteger),
    sa.Column("progress_at", sa.BigInteger),
    sa.Column("progress_due", sa.BigInteger),
    sa.Index("ix_documents_batches_owner", "tenant", "user", "created_at", "id"),
    sa.Index("ix_documents_batches_open", "completed_at", "requested_at"),
)

sa.Table(
    "documents_files",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("batch_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("content_type", sa.Text),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("upload", sa.Text, nullable=False, unique=True),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("md5", sa.Text),
    sa.Column("blob", sa.Text),
    sa.Column("text_blob", sa.Text),
    sa.Column("flow_id", sa.Text),
    sa.Column("jobs", sa.JSON(none_as_null=True)),
    sa.Column("chunk_count", sa.Integer),
    sa.Column("images", sa.JSON(none_as_null=True)),
    sa.Column("ocr", sa.Text),
    sa.Column("stage", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("error_code", sa.Text),
    sa.Column("attempts", sa.Integer),
    sa.Column("failed_at", sa.BigInteger),
    sa.Column("dead_job", sa.Text),
    sa.Column("retried_at", sa.BigInteger),
    sa.Column("retried_by", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("confirmed_at", sa.BigInteger),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Index("ix_documents_files_owner", "tenant", "user", "created_at", "id"),
    sa.Index("ix_documents_files_batch", "batch_id", "status"),
    sa.Index("ix_documents_files_expiry", "status", "expires_at"),
    sa.Index("ix_documents_files_dead", "tenant", "user", "failed_at"),
)


def upgrade() -> None:
    """Make the tables."""
    _metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Drop them."""
    _metadata.drop_all(op.get_bind())
