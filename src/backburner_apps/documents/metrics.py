"""The metrics of `documents`."""

from typing import Final

from backburner import Counter, Histogram

BUCKETS: Final = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)

started = Counter(
    "documents_stages_started_total", "Attempts of stages that started.", ["stage"]
)
stalled = Counter(
    "documents_stages_stalled_total",
    "Attempts of stages whose worker was lost.",
    ["stage"],
)
dead = Counter(
    "documents_dead_letters_total", "Files that failed in a stage.", ["stage", "code"]
)
retried = Counter(
    "documents_dead_letters_retried_total", "Failed files that were retried.", ["stage"]
)
recovered = Counter(
    "documents_retries_succeeded_total", "Retried files that became ready."
)
ready = Histogram(
    "documents_ready_seconds",
    "Time from the confirmation of a file until it is ready, in seconds.",
    buckets=BUCKETS,
)
EVERY: Final = (started, stalled, dead, retried, recovered, ready)
