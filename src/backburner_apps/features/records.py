"""
Derives job records from the engine's jobs.

There is no second copy that could become inconsistent: the record reflects the end of a
job immediately, whether by its handler, a cancel, a lost worker or an expiry.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from backburner import Job, JobState
from backburner_apps.features.core import codes
from backburner_apps.features.core.records import (
    JobRecord,
    JobStatus,
    Retention,
    record_name,
)

PREFIX: Final = "job_"
CAPABILITY: Final = "features."
QUEUE: Final = "features"
ONLY_SUBMITTED: Final = 1
"""Number of events of a job that no worker has begun: only that of its submission."""
_SHOWN: Final = frozenset({codes.LLM_API_ERROR, codes.VALIDATION_ERROR})


def engine_id(job_id: str) -> str:
    """Return the engine's id of a job; records and routes have the bare UUID."""
    return PREFIX + job_id


def bare_id(engine_id: str) -> str:
    """Return the bare UUID of the engine's id."""
    return engine_id.removeprefix(PREFIX)


def feature_of(capability: str) -> str | None:
    """Return the feature of a capability, by its name in records."""
    if not capability.startswith(CAPABILITY):
        return None
    return record_name(capability.removeprefix(CAPABILITY))


def status_of(job: Job) -> JobStatus:
    """Return the status of a job, which after its first start is never `PENDING`."""
    match job.state:
        case JobState.SUCCEEDED:
            return JobStatus.COMPLETED
        case JobState.FAILED | JobState.CANCELLED:
            return JobStatus.FAILED
        case JobState.RUNNING:
            return JobStatus.PROCESSING
        case _ if job.events > ONLY_SUBMITTED:
            return JobStatus.PROCESSING
        case _:
            return JobStatus.PENDING


def record_of(job: Job, retention: Retention, seconds: float) -> JobRecord | None:
    """Return the record of a job, or `None` if it is not a job of a feature."""
    feature = feature_of(job.capability)
    if feature is None:
        return None
    status, ended_at = status_of(job), moment(job.finished_at)
    fields: dict[str, Any] = {}
    if status is JobStatus.COMPLETED:
        fields["completed_at"] = ended_at
    if status is JobStatus.FAILED:
        fields = {"failed_at": ended_at, **_reason(job, seconds)}
    if status.is_final and ended_at is not None:
        fields["ttl"] = int((ended_at + retention.after(status)).timestamp())
    return JobRecord(
        job_id=bare_id(job.id),
        user_id=job.owner.user,
        feature=feature,
        status=status,
        created_at=moment(job.created_at),
        started_at=moment(job.started_at),
        attempts=job.attempt,
        **fields,
    )


def moment(instant: int | None) -> Any:
    """Return a time of the engine, in milliseconds, as a time in UTC."""
    if instant is None:
        return None
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=instant)


def _reason(job: Job, seconds: float) -> dict[str, str]:
    """Return the error message of a job for its user."""
    if job.state is JobState.CANCELLED:
        return {"code": codes.CANCELLED, "error": codes.CANCELLED_TEXT}
    code = "" if job.error is None else job.error.code
    if code == codes.TIMEOUT:
        return {"code": code, "error": codes.timeout_text(seconds)}
    if job.error is not None and code in _SHOWN:
        return {"code": code, "error": job.error.message}
    return {"code": codes.INTERNAL_ERROR, "error": codes.INTERNAL_TEXT}
