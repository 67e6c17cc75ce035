"""The tables of `chat`; `migrations` creates them."""

import sqlalchemy as sa

from backburner import Owner, Transaction, erase_rows

metadata = sa.MetaData()

personalities = sa.Table(
    "chat_personalities",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("system_prompt", sa.Text, nullable=False),
    sa.Column("model", sa.Text),
    sa.Column("temperature", sa.Float),
    sa.Column("memory_limit", sa.Integer),
    sa.Column("shared_memory", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

memories = sa.Table(
    "chat_memories",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("personality", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("vector", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Index(
        "ix_chat_memories_owner", "tenant", "personality", "user", "created_at", "id"
    ),
)
"""`vector` has the format of `vectors.packed`; only vectors of one `model` compare."""

requests = sa.Table(
    "chat_requests",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("flow_id", sa.Text, nullable=False),
    sa.Column("job_id", sa.Text, nullable=False, unique=True),
    sa.Column("created_at", sa.BigInteger, nullable=False, index=True),
    sa.Column("reply", sa.JSON(none_as_null=True)),
)
"""Recent requests, by which duplicates are recognised, and their stored replies."""

windows = sa.Table(
    "chat_windows",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, primary_key=True),
    sa.Column("minute", sa.BigInteger, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
)
"""The number of requests of each user in the minute of the user's last request."""

forgotten = sa.Table(
    "chat_forgotten",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, primary_key=True),
    sa.Column("personality", sa.Text, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
)
"""When a user last sent `/forget`: requests from before that store no memory."""

OF_USERS = (memories, requests, windows, forgotten)


def erase(tx: Transaction, owner: Owner, limit: int) -> int:
    """Delete up to `limit` rows of a user; return how many were deleted."""
    for table in OF_USERS:
        erased = erase_rows(tx, table, owner, limit)
        if erased:
            return erased
    return 0
