"""Job records, and their view for users."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final, NamedTuple
from uuid import uuid4

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer


def rfc3339(moment: datetime) -> str:
    """Format a time in UTC with milliseconds: `2026-01-31T08:00:00.000Z`."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


Timestamp = Annotated[
    AwareDatetime, PlainSerializer(rfc3339, return_type=str, when_used="json")
]


class JobStatus(StrEnum):
    """The status of a job, which never goes back to an earlier one."""

    PENDING = "PENDING"
    """Accepted; no worker has begun."""
    PROCESSING = "PROCESSING"
    """A worker has begun; also while the job awaits a retry."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self in {JobStatus.COMPLETED, JobStatus.FAILED}

    def may_become(self, status: "JobStatus") -> bool:
        """Return whether this status may change to the other one."""
        return status in _NEXT[self]


_NEXT: Final = {
    JobStatus.PENDING: frozenset(JobStatus) - {JobStatus.PENDING},
    JobStatus.PROCESSING: frozenset(JobStatus) - {JobStatus.PENDING},
    JobStatus.COMPLETED: frozenset[JobStatus](),
    JobStatus.FAILED: frozenset[JobStatus](),
}


class Retention(NamedTuple):
    """How long records and results are kept after a job has ended."""

    completed: timedelta = timedelta(days=7)
    failed: timedelta = timedelta(days=14)

    def after(self, status: JobStatus) -> timedelta:
        """Return how long a record with this status is kept."""
        return self.failed if status is JobStatus.FAILED else self.completed


class JobRecord(BaseModel):
    """The stored data of a job."""

    model_config = ConfigDict(frozen=True)

    job_id: str = Field(default_factory=lambda: str(uuid4()))
    """A bare UUID."""
    user_id: str
    feature: str
    """The name in records, for example `gap_analysis`."""
    status: JobStatus = JobStatus.PENDING
    created_at: Timestamp
    started_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    failed_at: Timestamp | None = None
    result_key: str | None = None
    """The key of the stored result."""
    error: str | None = None
    code: str | None = None
    attempts: int = 0
    ttl: int | None = None
    """When the record expires, in seconds since the epoch."""


class JobView(BaseModel):
    """A job as its user sees it; fields that are `None` are omitted."""

    job_id: str
    feature: str
    """The name in routes, for example `gap-analysis`."""
    status: JobStatus
    created_at: Timestamp
    started_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    failed_at: Timestamp | None = None
    error: str | None = None
    code: str | None = None
    result_url: str | None = None

    @classmethod
    def of(cls, record: JobRecord, result_url: str | None = None) -> "JobView":
        """Return the view of a record, with the URL of its result if it has one."""
        shown = record.model_dump(include=set(cls.model_fields))
        return cls(
            **{**shown, "feature": route_name(record.feature)}, result_url=result_url
        )


def record_name(feature: str) -> str:
    """Return a feature's name in records: `gap_analysis`."""
    return feature.replace("-", "_")


def route_name(feature: str) -> str:
    """Return a feature's name in routes: `gap-analysis`."""
    return feature.replace("_", "-")
