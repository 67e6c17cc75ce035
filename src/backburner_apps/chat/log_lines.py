"""Logs the end of each job once, regardless of what ended it."""

from typing import Final

from backburner import EngineEvent, Transaction
from backburner.web import log
from backburner_apps.chat.work import QUEUE

LOGGED: Final = ("job.succeeded", "job.failed")


def write(_tx: Transaction, engine_event: EngineEvent) -> None:
    """Log the end of a job of `ai-jobs`."""
    if engine_event.queue != QUEUE:
        return
    job = {"jobId": engine_event.job_id, "capability": engine_event.capability}
    if engine_event.type == "job.succeeded":
        log.info("Job completed", **job)
        return
    code = engine_event.event.data.get("error", {}).get("code")
    log.error("Job failed", **job, code=code)
