"""The metrics of `features`, with Prometheus names."""

from typing import Final

from backburner import Counter, EngineEvent, Histogram, Transaction
from backburner_apps.features.core import codes
from backburner_apps.features.core.records import JobRecord, route_name
from backburner_apps.features.records import feature_of

BUCKETS: Final = (1, 5, 15, 30, 60, 120, 180, 240, 300, 420, 540, 600, 660, 900)

submitted = Counter("jobs_submitted_total", "Jobs accepted, by feature.", ["feature"])
completed = Counter("jobs_completed_total", "Jobs completed, by feature.", ["feature"])
failed = Counter(
    "jobs_failed_total",
    "Jobs failed permanently, by feature and code.",
    ["feature", "code"],
)
durations = Histogram(
    "processing_duration_seconds",
    "Duration of one run of a job, in seconds.",
    ["feature"],
    buckets=BUCKETS,
)
latencies = Histogram(
    "llm_latency_seconds",
    "Duration of one model call, including a correction, in seconds.",
    ["feature"],
    buckets=BUCKETS,
)
EVERY: Final = (submitted, completed, failed, durations, latencies)

ENDS: Final = ("job.succeeded", "job.failed", "job.cancelled")
_SHOWN: Final = {
    codes.LLM_API_ERROR: codes.LLM_API_ERROR,
    codes.TIMEOUT: codes.TIMEOUT,
    codes.VALIDATION_ERROR: codes.VALIDATION_ERROR,
}


def count_end(_tx: Transaction, engine_event: EngineEvent) -> None:
    """Count the end of a job, regardless of what ended it."""
    feature = feature_of(engine_event.capability or "")
    if feature is None:
        return
    name = route_name(feature)
    if engine_event.type == "job.succeeded":
        completed.labels(name).inc()
        return
    code = engine_event.event.data.get("error", {}).get("code", "")
    is_cancelled = engine_event.type == "job.cancelled"
    shown = codes.CANCELLED if is_cancelled else _SHOWN.get(code, codes.INTERNAL_ERROR)
    failed.labels(name, shown).inc()


class PrometheusMeter:
    """Counts submissions and runs; ends are counted by `count_end`."""

    def submitted(self, record: JobRecord) -> None:
        """Count an accepted job."""
        submitted.labels(route_name(record.feature)).inc()

    def ended(self, record: JobRecord) -> None:
        """Do nothing: `count_end` counts every end, also after a lost worker."""

    def processed(self, feature: str, seconds: float) -> None:
        """Record how long one run took."""
        durations.labels(feature).observe(seconds)

    def asked(self, feature: str, seconds: float) -> None:
        """Record how long one model call took."""
        latencies.labels(feature).observe(seconds)
