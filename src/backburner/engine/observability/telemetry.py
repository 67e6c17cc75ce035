"""
Log lines and metrics of the platform, in one place.

A log line carries only the keys listed in `ports/log.py`; other keys are dropped and
counted. Inputs, outputs, error messages and tags, which are user text, therefore cannot
reach a log.
"""

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from functools import cache
from typing import Any, TextIO, cast

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    generate_latest,
)

from backburner.domain.errors import Problem, UnknownCapability
from backburner.domain.events.event import SCHEDULED
from backburner.domain.jobs.job import Claim, Instant, JobState
from backburner.domain.jobs.transitions import Change
from backburner.domain.lanes.rate_limit_headers import RateLimitInfo
from backburner.domain.printable import on_lines
from backburner.domain.queues.queue import Throttling
from backburner.engine.observability.durations import Durations
from backburner.ports.log import Unbreakable, listed, log

registry = CollectorRegistry()
_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1800)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(name, text, labels, registry=registry)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(name, text, labels, registry=registry)


jobs_submitted = _counter(
    "backburner_jobs_submitted_total", "Jobs accepted.", "capability"
)
jobs_finished = _counter(
    "backburner_jobs_finished_total", "Jobs that ended.", "capability", "state"
)
job_attempts = _counter(
    "backburner_job_attempts_total",
    "Attempts that ended, by outcome.",
    "capability",
    "outcome",
)
job_wait = Durations(
    "backburner_job_wait_seconds", "From ready to started.", "queue", _SECONDS
)
job_run = Durations(
    "backburner_job_run_seconds",
    "From started to the handler's end.",
    "capability",
    _SECONDS,
)
registry.register(job_wait)
registry.register(job_run)
connections_refused = _counter(
    "backburner_connections_refused_total",
    "Connections that were closed because of a server limit, by problem code.",
    "code",
)
leases_expired = _counter(
    "backburner_leases_expired_total", "Jobs taken from workers whose lease expired."
)
stale_completions = _counter(
    "backburner_stale_completions_total",
    "Outcomes refused because the worker had lost the job.",
)
poison_jobs = _counter(
    "backburner_poison_jobs_total",
    "Jobs ended because their workers were lost too often.",
)
redrive_jobs = _counter("backburner_redrive_jobs_total", "Dead letters queued again.")
loop_lag = _gauge(
    "backburner_event_loop_lag_seconds", "How late the event loop ran its last tick."
)
sse_clients = _gauge("backburner_sse_clients", "Readers of event streams.")
queue_depth = _gauge(
    "backburner_queue_depth", "Jobs by queue and live state.", "queue", "state"
)
queue_ended = _gauge(
    "backburner_queue_ended_jobs",
    "Ends of jobs by queue, as the store counts them; a restart does not reset them.",
    "queue",
    "end",
)
queue_throttled = _counter(
    "backburner_queue_throttled_total",
    "Windows of a queue's rate that closed while jobs waited.",
    "queue",
)
lane_calls = _counter(
    "backburner_lane_calls_total",
    "Calls per lane and result: served, refused or unknown.",
    "lane",
    "outcome",
)
lane_asks = _counter(
    "backburner_lane_asks_total",
    "Requests for permits, by whether they were granted.",
    "lane",
    "given",
)
lane_throttled = _counter(
    "backburner_lane_throttled_total",
    "Number of times a lane was paused after a refused call.",
    "lane",
)
schedule_ticks = _counter(
    "backburner_schedule_ticks_total", "Ticks of schedules that fired.", "schedule"
)
queue_oldest = _gauge(
    "backburner_queue_oldest_age_seconds", "Age of the oldest queued job.", "queue"
)
budget_refused = _counter(
    "backburner_budget_refused_total",
    "Submits refused because a budget was exhausted.",
    "scope",
    "unit",
)
budget_amount = _gauge(
    "backburner_budget_amount",
    "Held, settled and overdrawn amounts in current windows: tokens or micro-dollars.",
    "scope",
    "unit",
    "kind",
)
broker_up = _gauge(
    "backburner_broker_up",
    "1 if the message broker is available, otherwise 0; jobs run without it.",
    "transport",
)
broker_messages_published = _counter(
    "backburner_broker_messages_published_total",
    "Messages published to the broker: after a submit, or found missing.",
    "cause",
)
foreign_messages = _counter(
    "backburner_foreign_messages_total",
    "Messages of other programs: submitted, retried, stale or refused.",
    "queue",
    "outcome",
)
dead_letters_exported = _counter(
    "backburner_dead_letters_exported_total",
    "Dead letters written to the message broker.",
    "queue",
)
guard_verdicts = _counter(
    "backburner_guard_verdicts_total",
    "Inputs that look like a prompt injection: flagged or blocked.",
    "capability",
    "verdict",
)
ai_calls = _counter(
    "backburner_ai_calls_total",
    "Calls of models by provider, purpose and result: ok, or the code of the error.",
    "provider",
    "purpose",
    "result",
)
dead_jobs = _gauge("backburner_dead_jobs", "Dead letters kept; counted up to 100,000.")
build_info = _gauge("backburner_build_info", "The release.", "version")
log_keys_dropped = _counter(
    "backburner_log_keys_dropped_total", "Keys kept out of log lines."
)


@cache
def _labelled(metric: Any, *values: str) -> Any:
    """Return a metric's child; the library's own look-up costs more than counting."""
    return metric.labels(*values)


def started(claims: Sequence[Claim], now: Instant) -> None:
    """Record how long jobs waited."""
    for claim in claims:
        job_wait.observe(claim.queue, max(0, now - claim.ready_at) / 1000)


def settled(ends: Sequence[tuple[Claim, Change]]) -> None:
    """Count ended attempts and log failures."""
    counts: dict[tuple[str, str, JobState], int] = {}
    for claim, change in ends:
        kind = (claim.capability, change.event, change.to)
        counts[kind] = counts.get(kind, 0) + 1
        seconds = max(0, change.at - claim.started_at) / 1000
        job_run.observe(claim.capability, seconds)
        if change.error is not None:
            _log_failure(claim, change, change.error)
    for (capability, event, state), count in counts.items():
        outcome = event.removeprefix("job.")
        _labelled(job_attempts, capability, outcome).inc(count)
        if state.is_final:
            _labelled(jobs_finished, capability, state).inc(count)


def _log_failure(claim: Claim, change: Change, error: Problem) -> None:
    line = f"job {change.event.removeprefix('job.')}"
    # A wait is intended if the handler asks for it or waits for a lane. The worker
    # itself logs which capabilities it does not have, once for many jobs.
    is_meant = (
        change.event == SCHEDULED
        or "lane" in (change.data or {})
        or error.code == UnknownCapability.code
    )
    tell = log.debug if is_meant else log.warning
    tell(
        line,
        job_id=claim.id,
        capability=claim.capability,
        queue=claim.queue,
        attempt=claim.attempt,
        generation=claim.generation,
        code=error.code,
        delay=change.run_at - change.at if change.run_at else None,
        request_id=claim.request_id,
        **_origin(change),
    )
    if _traces is not None and change.trace is not None:
        trace, _, kind = change.trace.rstrip().rpartition("\n")
        message = error.message.removeprefix(f"{kind}: ")
        _traces.write(on_lines(f"{trace}\n{kind}: {message}\n"))


def _origin(change: Change) -> dict[str, str]:
    """Return type, file and line of an exception, never its message: it may be data."""
    if change.trace is None or change.place is None:
        return {}
    error_type = change.trace.rstrip().rpartition("\n")[2]
    return {"error_type": error_type, "place": change.place}


_traces: Unbreakable | None = None


def show_traces(stream: TextIO | None = None) -> None:
    """Print the stack traces of failed attempts with their messages, for developers."""
    global _traces  # noqa: PLW0603 - as structlog's configuration, one for the process
    _traces = Unbreakable(stream)


def throttled(throttling: Throttling) -> None:
    """Count and log queues that reached their rate limit."""
    queue, windows, _ = throttling
    queue_throttled.labels(queue).inc(windows)
    log.warning("queue.throttled", queue=queue, count=windows)


MOST_LANES = 100
_lanes: set[str] = set()


def _lane(name: str) -> str:
    """Return a lane's label; the number of labels is bounded."""
    if name not in _lanes and len(_lanes) >= MOST_LANES:
        return "others"
    _lanes.add(name)
    return name


def lane_asked(lane: str, *, is_served: bool) -> None:
    """Count a request for a lane."""
    _labelled(lane_asks, _lane(lane), "yes" if is_served else "no").inc()


def lane_answered(
    lane: str, info: RateLimitInfo | None, wait: int | None, *, is_parked: bool
) -> None:
    """Count the result of a call, and log that a lane is parked."""
    outcome = "unknown" if info is None else "refused" if info.is_refused else "served"
    _labelled(lane_calls, _lane(lane), outcome).inc()
    if is_parked:
        _labelled(lane_throttled, _lane(lane)).inc()
        log.warning("lane.throttled", lane=lane, delay=wait)


def broker_changed(transport: str, *, is_up: bool, code: str | None = None) -> None:
    """Record and log that the broker was lost or is available again."""
    broker_up.labels(transport).set(int(is_up))
    if is_up:
        log.info("broker back", state="ok")
    else:
        log.warning("broker lost", state="degraded", code=code)


def guarded(capability: str, *, is_refused: bool) -> None:
    """Count and log an input that looks like a prompt injection."""
    verdict = "blocked" if is_refused else "flagged"
    _labelled(guard_verdicts, capability, verdict).inc()
    log.warning(f"guard.{verdict}", capability=capability)


def model_asked(provider: str, purpose: str, result: str = "ok") -> None:
    """Count a model call; the provider's label is its name in the settings."""
    _labelled(ai_calls, provider, purpose, str(result)).inc()


def metrics() -> bytes:
    """Write all metrics in Prometheus' text format."""
    return generate_latest(registry)


def configure(*, level: str, pretty: bool, stream: TextIO | None = None) -> None:
    """Configure logging, as JSON or as readable text for a terminal."""
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=pretty)
        if pretty
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _only_listed,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(
            cast("TextIO", Unbreakable(stream))
        ),
        cache_logger_on_first_use=False,
    )


def _only_listed(
    _logger: Any, _name: str, line: MutableMapping[str, Any]
) -> Mapping[str, Any]:
    kept = listed(_logger, _name, line)
    if len(kept) < len(line):
        log_keys_dropped.inc(len(line) - len(kept))
    return kept


def told(names: Sequence[str]) -> str:
    """Join a list of names into one value."""
    return ",".join(names)
