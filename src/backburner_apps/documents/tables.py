"""The tables of batches and files. `migrations` creates them."""

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()
Row = sa.Row[Any]
"""A row of a batch or of a file."""

batches = sa.Table(
    "documents_batches",
    metadata,
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
"""
`requested` counts the files for which a URL was requested, `requested_at` is when the
last one was. `closed_at`: no further URL is given; files that are missing have failed.
`generation` counts how often the batch was opened again. `progress_at` is when
`batch:progress` was published last, `progress_due` when it will be next, if a job waits
to do so.
"""

files = sa.Table(
    "documents_files",
    metadata,
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
"""
`status` after `queued` follows the events of the jobs of the flow (`jobs`: their ids by
stage), in the order of those events, and each change raises `version`. `blob` holds the
uploaded bytes, `text_blob` the extracted pages as JSON. `dead_job` is the job that
failed, as long as it is a dead letter.
"""
