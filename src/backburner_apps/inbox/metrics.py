"""The metrics of the inbox; names and labels are part of its contract."""

from typing import Final

from backburner import Counter, Histogram

BUCKETS: Final = (10, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000)

parses = Counter(
    "ai_parse_total",
    "Attempts to extract tasks from a message: success, fallback or error (of a "
    "provider; will be retried).",
    ["result", "provider"],
)
durations = Histogram(
    "ai_parse_duration_ms",
    "Duration of model calls, in milliseconds.",
    ["provider"],
    buckets=BUCKETS,
)
created = Counter(
    "tasks_created_total",
    "Tasks stored, by source (ai, fallback) and type of message (text, voice).",
    ["source", "sourceType"],
)
hits = Counter(
    "queue_idempotency_hits_total",
    "Repeated messages without effect, at the webhook or at the processor.",
    ["queue"],
)
EVERY: Final = (parses, durations, created, hits)
