"""What the inbox counts; names and labels are part of its contract."""

from typing import Final

from backburner import Counter, Histogram

BUCKETS: Final = (10, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000)

parses = Counter(
    "ai_parse_total",
    "Attempts to read tasks off a message: success, fallback or error (a provider's, "
    "to be tried again).",
    ["result", "provider"],
)
durations = Histogram(
    "ai_parse_duration_ms",
    "How long the model took, in milliseconds.",
    ["provider"],
    buckets=BUCKETS,
)
created = Counter(
    "tasks_created_total",
    "Tasks stored, by source (ai, fallback) and by what was sent (text, voice).",
    ["source", "sourceType"],
)
hits = Counter(
    "queue_idempotency_hits_total",
    "Messages that came again, at the webhook or at the processor, without effect.",
    ["queue"],
)
EVERY: Final = (parses, durations, created, hits)
