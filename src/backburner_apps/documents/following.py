"""
Files follow their jobs: engine events become states of files and events of theirs.

The platform calls `follow` once for each event, in order, over all processes. So it
makes no difference which route, worker or command ended a job or opened it again.
"""

from typing import Any, Final, NamedTuple

from backburner import EngineEvent, Owner, Transaction
from backburner.web import log, time
from backburner_apps.documents import batches, changes, metrics, states
from backburner_apps.documents.states import Step

TYPES: Final = (
    "job.queued",
    "job.scheduled",
    "job.started",
    "job.stalled",
    "job.succeeded",
    "job.failed",
    "job.cancelled",
    "queue.throttled",
)
ADMINISTRATORS: Final = Owner("default", "documents")
"""Its events are visible to readers of the whole platform tenant only."""
ADMIN_TOPIC: Final = "documents:queues"
CANCELLED: Final = "The processing of the file was cancelled"


def follow(tx: Transaction, engine_event: EngineEvent) -> None:
    """Change the state of a file according to an event of one of its jobs."""
    if engine_event.type == "queue.throttled":
        _publish_limit(tx, engine_event)
        return
    step = states.step_of(engine_event.step)
    file = None if step is None else changes.find(tx, step.file_id)
    if step is None or file is None or file.flow_id != engine_event.flow_id:
        return
    if engine_event.type == "job.stalled":
        _publish_stall(tx, file, step, engine_event)
    elif engine_event.type == "job.started":
        metrics.started.labels(step.stage).inc()
    _move(tx, file, step, engine_event)


def _move(tx: Transaction, file: Any, step: Step, engine_event: EngineEvent) -> None:
    if not any(_change(file, step, engine_event)):
        return
    batch = batches.lock(tx, file.batch_id)
    file = changes.find(tx, step.file_id)
    if batch is None or file is None:
        return
    # A request may have changed the file before the batch was locked.
    to, values, is_new = _change(file, step, engine_event)
    if to is None:
        if values:
            changes.update(tx, file, **values)
    elif changes.move(tx, file, to, **values):
        _count(file, step, engine_event, to)
    if to is not None or is_new:
        batches.changed(tx, batch)


class _Change(NamedTuple):
    """The effect of an event on a file; nothing if all fields are false."""

    to: str | None
    values: dict[str, Any]
    is_new: bool
    """Whether it is the first event of a confirmed file, which its batch counts."""


def _change(file: Any, step: Step, engine_event: EngineEvent) -> _Change:
    """Return what an event changes in a file that is in its current state."""
    data = engine_event.event.data
    to = states.moved(file.status, step.stage, engine_event.type, data)
    values = _values(file, step, engine_event, to)
    is_new = engine_event.type == "job.queued" and to is None and step.stage == _FIRST
    return _Change(to, values, is_new)


_FIRST: Final = states.EXTRACTING


def _values(
    file: Any, step: Step, engine_event: EngineEvent, to: str | None
) -> dict[str, Any]:
    """Return the other columns of the file's row that an event changes."""
    if engine_event.type == "job.started":
        return {"attempts": engine_event.event.data["attempt"]}
    if to == states.FAILED:
        return _failure(step, engine_event)
    if to is None:
        return {}
    if file.status == states.FAILED:
        return {"retried_at": engine_event.event.at, "attempts": 0}
    if to == states.READY:
        done = {"dead_job": None, "stage": None, "attempts": None}
        return {**done, "error": None, "error_code": None}
    return {"attempts": 0}


def _failure(step: Step, engine_event: EngineEvent) -> dict[str, Any]:
    is_dead = engine_event.type == "job.failed"
    problem = engine_event.event.data.get("error") or {}
    return {
        "stage": step.stage,
        "error": (problem.get("message") if is_dead else CANCELLED)
        or engine_event.type,
        "error_code": problem.get("code") if is_dead else "CANCELLED",
        "failed_at": engine_event.event.at,
        "dead_job": engine_event.job_id if is_dead else None,
    }


def _count(file: Any, step: Step, engine_event: EngineEvent, to: str) -> None:
    """Update the metrics after a change, and log a failed extraction."""
    if to == states.READY and file.confirmed_at is not None:
        metrics.ready.observe((engine_event.event.at - file.confirmed_at) / 1000)
        if file.retried_at is not None:
            metrics.recovered.inc()
    elif file.status == states.FAILED:
        metrics.retried.labels(step.stage).inc()
    elif to == states.FAILED and engine_event.type == "job.failed":
        code = (engine_event.event.data.get("error") or {}).get("code", "")
        metrics.dead.labels(step.stage, code).inc()
        if step.stage == states.EXTRACTING:
            log.error(
                "Extraction failed",
                fileId=file.id,
                batchId=file.batch_id,
                stage=step.stage,
                code=code,
                attempt=file.attempts,
            )


def _publish_stall(
    tx: Transaction, file: Any, step: Step, engine_event: EngineEvent
) -> None:
    metrics.stalled.labels(step.stage).inc()
    retries = engine_event.event.data.get("crashes", 1)
    data = {"fileId": file.id, "stage": step.stage, "retryCount": retries}
    owner = batches.owner_of(file)
    tx.publish(batches.topic(file.batch_id), "file:processing-stalled", data, to=owner)


def _publish_limit(tx: Transaction, engine_event: EngineEvent) -> None:
    data = {"queue": engine_event.queue, "timestamp": time(engine_event.event.at)}
    tx.publish(ADMIN_TOPIC, "queue:rate-limit-exceeded", data, to=ADMINISTRATORS)
