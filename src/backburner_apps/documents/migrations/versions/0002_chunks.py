"""Chunks, their vectors, and what they are found by."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_metadata = sa.MetaData()
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")

sa.Table(
    "documents_owners",
    _metadata,
    sa.Column("number", _NUMBER, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("token", sa.Text, nullable=False),
    sa.Column("chunks", sa.BigInteger, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("removed", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("tenant", "user", name="uq_documents_owners"),
)
sa.Table(
    "documents_chunks",
    _metadata,
    sa.Column("seq", _NUMBER, primary_key=True),
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
sa.Table(
    "documents_vectors",
    _metadata,
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

_WORDS = {
    "sqlite": """
        CREATE VIRTUAL TABLE documents_words
        USING fts5(words, tokenize = 'unicode61 remove_diacritics 0');
        CREATE VIRTUAL TABLE documents_words_counts
        USING fts5vocab(documents_words, row)
    """,
    # Rows without their words are small, so that counting them is fast. There is no
    # list of pending rows, as every search would have to read it.
    "postgresql": """
        CREATE TABLE documents_words (seq bigint PRIMARY KEY, words tsvector NOT NULL)
        WITH (toast_tuple_target = 128);
        CREATE INDEX ix_documents_words ON documents_words
        USING gin (words) WITH (fastupdate = off)
    """,
}


def upgrade() -> None:
    """Make the tables."""
    _metadata.create_all(op.get_bind())
    for statement in _WORDS[op.get_bind().dialect.name].split(";"):
        op.execute(statement)


def downgrade() -> None:
    """Drop them."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE documents_words_counts")
    op.execute("DROP TABLE documents_words")
    _metadata.drop_all(op.get_bind())
