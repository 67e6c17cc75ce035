"""
Files follow their jobs: engine events become states of files and events of theirs.

The platform calls `follow` once for each event, in order, over all processes. So it
makes no difference which route, worker or command ended a job or opened it again.
"""

from typing import Any, Final

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


def follow(tx: Transaction, told: EngineEvent) -> None:
    """Change the state of a file according to an event of one of its jobs."""
    if told.type == "queue.throttled":
        _publish_limit(tx, told)
        return
    step = states.step_of(told.step)
    file = None if step is None else changes.find(tx, step.file_id)
    if step is None or file is None or file.flow_id != told.flow_id:
        return
    if told.type == "job.stalled":
        _publish_stall(tx, file, step, told)
    elif told.type == "job.started":
        metrics.started.labels(step.stage).inc()
    _move(tx, file, step, told)


def _move(tx: Transaction, file: Any, step: Step, told: EngineEvent) -> None:
    data = told.event.data
    to = states.moved(file.status, step.stage, told.type, data)
    values = _values(file, step, told, to)
    # The first event of a confirmed file: its batch has one more that is queued.
    is_new = told.type == "job.queued" and to is None and step.stage == _FIRST
    if to is None and not values and not is_new:
        return
    batch = batches.lock(tx, file.batch_id)
    file = changes.find(tx, step.file_id)
    if batch is None or file is None:
        return
    if to is None:
        if values:
            changes.update(tx, file, **values)
    elif changes.move(tx, file, to, **values):
        _count(file, step, told, to)
    if to is not None or is_new:
        batches.changed(tx, batch)


_FIRST: Final = states.EXTRACTING


def _values(file: Any, step: Step, told: EngineEvent, to: str | None) -> dict[str, Any]:
    """Return the other columns of the file's row that an event changes."""
    if told.type == "job.started":
        return {"attempts": told.event.data["attempt"]}
    if to == states.FAILED:
        return _failure(step, told)
    if to is None:
        return {}
    if file.status == states.FAILED:
        return {"retried_at": told.event.at, "attempts": 0}
    if to == states.READY:
        done = {"dead_job": None, "stage": None, "attempts": None}
        return {**done, "error": None, "error_code": None}
    return {"attempts": 0}


def _failure(step: Step, told: EngineEvent) -> dict[str, Any]:
    is_dead = told.type == "job.failed"
    problem = told.event.data.get("error") or {}
    return {
        "stage": step.stage,
        "error": (problem.get("message") if is_dead else CANCELLED) or told.type,
        "error_code": problem.get("code") if is_dead else "CANCELLED",
        "failed_at": told.event.at,
        "dead_job": told.job_id if is_dead else None,
    }


def _count(file: Any, step: Step, told: EngineEvent, to: str) -> None:
    """Update the metrics after a change, and log a failed extraction."""
    if to == states.READY and file.confirmed_at is not None:
        metrics.ready.observe((told.event.at - file.confirmed_at) / 1000)
        if file.retried_at is not None:
            metrics.recovered.inc()
    elif file.status == states.FAILED:
        metrics.retried.labels(step.stage).inc()
    elif to == states.FAILED and told.type == "job.failed":
        code = (told.event.data.get("error") or {}).get("code", "")
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


def _publish_stall(tx: Transaction, file: Any, step: Step, told: EngineEvent) -> None:
    metrics.stalled.labels(step.stage).inc()
    retries = told.event.data.get("crashes", 1)
    data = {"fileId": file.id, "stage": step.stage, "retryCount": retries}
    owner = batches.owner_of(file)
    tx.publish(batches.topic(file.batch_id), "file:processing-stalled", data, to=owner)


def _publish_limit(tx: Transaction, told: EngineEvent) -> None:
    data = {"queue": told.queue, "timestamp": time(told.event.at)}
    tx.publish(ADMIN_TOPIC, "queue:rate-limit-exceeded", data, to=ADMINISTRATORS)
