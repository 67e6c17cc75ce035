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
    sa.Column("flow", sa.BigInteger),
    sa.Column("step", sa.Text),
    sa.Column("needs", sa.Integer, nullable=False),
    sa.Column("open", sa.Integer, nullable=False),
    sa.Column("batch", sa.BigInteger),
    sa.Column("callback", sa.Text),
    sa.Column("traceparent", sa.Text),
    sa.Column("tokens", sa.BigInteger),
    sa.Column("model", sa.Text),
    sa.Column("share", sa.Text),
    sa.Column("holds", sa.Integer, nullable=False),
    sa.Column("kept", sa.SmallInteger),
    sa.Column("wait", sa.Text),
    sa.Column("metadata", sa.Text),
)

edges = sa.Table(
    "edges",
    metadata,
    sa.Column("prerequisite", sa.BigInteger, primary_key=True),
    sa.Column("dependent", sa.BigInteger, primary_key=True),
    sa.Column("continues", sa.Boolean, nullable=False),
)

flows = sa.Table(
    "flows",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("events", sa.Integer, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("finished_at", sa.BigInteger),
    sa.Column("callback", sa.Text),
    sa.Column("tags", sa.Text),
    sa.Column("request_id", sa.Text),
    sa.Column("traceparent", sa.Text),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("body_hash", sa.Text),
    sa.Column("batch", sa.BigInteger),
    sa.Column("deadline", sa.BigInteger),
    sa.Column("active", sa.Integer, nullable=False),
    sa.Column("troubled", sa.Boolean, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("kept", sa.Text),
)

batches = sa.Table(
    "batches",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("events", sa.Integer, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("finished_at", sa.BigInteger),
    sa.Column("callback", sa.Text),
    sa.Column("tags", sa.Text),
    sa.Column("request_id", sa.Text),
    sa.Column("traceparent", sa.Text),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("body_hash", sa.Text),
    sa.Column("expected", sa.Integer),
    sa.Column("sealed", sa.Boolean, nullable=False),
    sa.Column("completion", sa.Text),
    sa.Column("counts", sa.Text),
    sa.Column("told", sa.Integer, nullable=False),
    sa.Column("told_at", sa.BigInteger, nullable=False),
)

endpoints = sa.Table(
    "endpoints",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("rotated_at", sa.BigInteger),
    sa.Column("disabled_at", sa.BigInteger),
    sa.Column("disabled_reason", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("job", sa.BigInteger),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("data", sa.Text),
    sa.Column("flow", sa.BigInteger),
    sa.Column("batch", sa.BigInteger),
    sa.Column("queue", sa.Text),
    sa.Column("tenant", sa.Text),
    sa.Column("user", sa.Text),
    sa.Column("topic", sa.Text),
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
    sa.Column("draining", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("running", sa.Integer),
    sa.Column("lag_ms", sa.Integer),
    sa.Column("memory", sa.BigInteger),
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
    sa.Column("weights", sa.Text),
    sa.Column("waiting", sa.Integer),
    sa.Column("keep", sa.Text),
)

totals = sa.Table(
    "totals",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("n", sa.BigInteger, nullable=False),
)

fronts = sa.Table(
    "fronts",
    metadata,
    sa.Column("queue", sa.Text, primary_key=True),
    sa.Column("priority", sa.Integer, primary_key=True),
    sa.Column("front", sa.BigInteger, nullable=False),
)

shares = sa.Table(
    "shares",
    metadata,
    sa.Column("queue", sa.Text, primary_key=True),
    sa.Column("priority", sa.Integer, primary_key=True),
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("finish", sa.BigInteger, nullable=False),
    sa.Column("taken", sa.BigInteger, nullable=False),
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
    sa.Column("paused", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("tenant", sa.Text),
    sa.Column("user", sa.Text),
    sa.Column("input", sa.Text),
)

budgets = sa.Table(
    "budgets",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("per", sa.BigInteger, nullable=False),
    sa.Column("ceiling", sa.BigInteger, nullable=False),
    sa.Column("is_declared", sa.Boolean, nullable=False),
    sa.Column("overrun", sa.Text, nullable=False, server_default=sa.text("'extend'")),
)

accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("per", sa.BigInteger, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("window_at", sa.BigInteger, nullable=False),
    sa.Column("ceiling", sa.BigInteger, nullable=False),
    sa.Column("held", sa.BigInteger, nullable=False),
    sa.Column("settled", sa.BigInteger, nullable=False),
    sa.Column("overdraft", sa.BigInteger, nullable=False),
)

account_samples = sa.Table(
    "account_samples",
    metadata,
    sa.Column("account", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("slot", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("settled", sa.BigInteger, nullable=False),
    sa.Column("held", sa.BigInteger, nullable=False),
    sa.Column("ceiling", sa.BigInteger, nullable=False),
    sa.Column("window_end", sa.BigInteger, nullable=False),
)

holds = sa.Table(
    "holds",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("id", sa.Text),
    sa.Column("job", sa.BigInteger),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("account", sa.BigInteger, nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("used", sa.BigInteger),
    sa.Column("is_open", sa.Boolean, nullable=False),
    sa.Column("is_estimated", sa.Boolean, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("earlier", sa.BigInteger),
    sa.Column("resumes_with", sa.BigInteger),
)

entries = sa.Table(
    "entries",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("account", sa.BigInteger, nullable=False),
    sa.Column("hold", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("ceiling", sa.BigInteger),
)

usages = sa.Table(
    "usages",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("job", sa.BigInteger, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("capability", sa.Text, nullable=False),
    sa.Column("tags", sa.Text),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("provider", sa.Text),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("cost", sa.BigInteger),
    sa.Column("price_version", sa.Text),
    sa.Column("late", sa.Boolean, nullable=False),
    sa.Column("duration_ms", sa.BigInteger),
)

step_results = sa.Table(
    "step_results",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("job", sa.BigInteger, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("result", sa.Text, nullable=False),  # empty: it was begun
    sa.Column("expected", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("is_open", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("is_concurrent", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("doubts", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("duration_ms", sa.BigInteger),
)

waits = sa.Table(
    "waits",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("job", sa.BigInteger, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("until", sa.BigInteger),
    sa.Column("asked_at", sa.BigInteger),
    sa.Column("question", sa.Text),
    sa.Column("outcome", sa.Text),
    sa.Column("value", sa.Text),
    sa.Column("decided_at", sa.BigInteger),
)

lanes = sa.Table(
    "lanes",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("requests", sa.Integer),
    sa.Column("tokens", sa.BigInteger),
    sa.Column("at_once", sa.Integer),
    sa.Column("spacing", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
)

app_blobs = sa.Table(
    "app_blobs",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("app", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("content_type", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("upload", sa.Text, unique=True),
)

marks = sa.Table(
    "marks",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.Text),
    sa.Column("until", sa.BigInteger, nullable=False),
)

permits = sa.Table(
    "permits",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("lane", sa.Text, nullable=False),
    sa.Column("worker", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
)
