"""
The tables of chunks and their vectors. `migrations` creates them.

The full-text index (`documents_words`) is derived from them and differs between
databases: see `full_text.py`. So is `documents_halfvecs`: see `pgvector.py`.
"""

from typing import Final

import sqlalchemy as sa

from backburner_apps.documents.tables import metadata

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
"""An automatically numbered key; on SQLite that requires `INTEGER`."""

FLOATS: Final = "<f2"
"""How numpy names the numbers of a stored vector: 16 bits, little-endian."""

owners = sa.Table(
    "documents_owners",
    metadata,
    sa.Column("number", NUMBER, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("token", sa.Text, nullable=False),
    sa.Column("chunks", sa.BigInteger, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("removed", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("tenant", "user", name="uq_documents_owners"),
)
"""
A row for each user with chunks, locked by whatever writes them. `token` is random and
names the user's vectors in the cache of a process. `chunks` counts the chunks,
`version` the transactions that added vectors, `removed` the vectors that were deleted.
"""

chunks = sa.Table(
    "documents_chunks",
    metadata,
    sa.Column("seq", NUMBER, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("file_id", sa.Text, nullable=False),
    sa.Column("batch_id", sa.Text, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("page", sa.Integer),
    sa.Column("content_hash", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.UniqueConstraint("file_id", "number", name="uq_documents_chunks"),
    sa.Index("ix_documents_chunks_content", "tenant", "user", "content_hash"),
    sa.Index("ix_documents_chunks_batch", "batch_id"),
)

vectors = sa.Table(
    "documents_vectors",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, primary_key=True),
    sa.Column("content_hash", sa.Text, primary_key=True),
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("dimension", sa.Integer, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("vector", sa.LargeBinary, nullable=False),
    sa.Index(
        "ix_documents_vectors_version",
        *("tenant", "user", "model", "version", "content_hash"),
    ),
)
"""
`vector` has length 1; its numbers are `FLOATS`. `version` is that
of its owner when it was added: a process that knows older ones reads what is newer.
"""
