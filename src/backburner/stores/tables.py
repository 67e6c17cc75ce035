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

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text),
    sa.Column("scopes", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("revoked_at", sa.BigInteger),
    sa.Column("last_used_at", sa.BigInteger),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text),
)

queues = sa.Table(
    "queues",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("paused", sa.Boolean, nullable=False),
    sa.Column("concurrency", sa.Integer),
    sa.Column("per_worker", sa.Integer),
    sa.Column("rate", sa.Integer),
    sa.Column("per", sa.BigInteger, nullable=False),
    sa.Column("window_at", sa.BigInteger, nullable=False),
    sa.Column("started", sa.Integer, nullable=False),
    sa.Column("limited_until", sa.BigInteger),
    sa.Column("closed", sa.BigInteger, nullable=False),
    sa.Column("told", sa.BigInteger, nullable=False),
)

schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("capability", sa.Text, nullable=False),
    sa.Column("cron", sa.Text, nullable=False),
    sa.Column("timezone", sa.Text, nullable=False),
    sa.Column("missed", sa.Text, nullable=False),
    sa.Column("next_at", sa.BigInteger, nullable=False),
    sa.Column("last_at", sa.BigInteger),
)
