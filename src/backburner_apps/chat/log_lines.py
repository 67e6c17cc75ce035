"""The log lines about the ends of jobs, each written once, whatever ended the job."""

from typing import Final

from backburner import EngineEvent, Transaction
from backburner.web import log
from backburner_apps.chat.work import QUEUE

LOGGED: Final = ("job.succeeded", "job.failed")


def write(_tx: Transaction, told: EngineEvent) -> None:
    """Log the end of a job of `ai-jobs`."""
    if told.queue != QUEUE:
        return
    if told.type == "job.succeeded":
        log.info("Job completed", jobId=told.job_id, capability=told.capability)
        return
    code = told.event.data.get("error", {}).get("code")
    log.error("Job failed", jobId=told.job_id, capability=told.capability, code=code)
