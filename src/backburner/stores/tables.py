"""The engine's tables, for lists whose filters vary. The schema itself: migrations/."""

import sqlalchemy as sa

metadata = sa.MetaData()

Key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("capability", sa.Text, nullable=False),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("rank", sa.BigInteger, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("crashes", sa.Integer, nullable=False),
    sa.Column("throttled", sa.BigInteger, nullable=False),
    sa.Column("events", sa.Integer, nullable=False),
    sa.Column("token", sa.Text),
    sa.Column("worker", sa.Text),
    sa.Column("run_at", sa.BigInteger),
    sa.Column("start_by", sa.BigInteger),
    sa.Column("deadline", sa.BigInteger),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("ready_at", sa.BigInteger, nullable=False),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("finished_at", sa.BigInteger),
    sa.Column("input", sa.Text, nullable=False),
    sa.Column("output", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("error_code", sa.Text),
    sa.Column("fingerprint", sa.Text),
    sa.Column("progress", sa.Text),
    sa.Column("tags", sa.Text),
    sa.Column("request_id", sa.Text),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("body_hash", sa.Text),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("job", sa.BigInteger, nullable=False),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("data", sa.Text),
)

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("queues", sa.Text, nullable=False),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("beat_at", sa.BigInteger, nullable=False),
)
