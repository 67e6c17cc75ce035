"""Access to job records: one interface for all stores."""

from typing import Any, Protocol

from backburner_apps.features.core.records import JobRecord, JobStatus
from backburner_apps.features.core.result import Result


class JobsDalHandler(Protocol):
    """
    Stores job records. Errors are returned as `Result`, not raised.

    Every change is a compare-and-set: a status that does not allow it is answered
    with `CONFLICT` and changes nothing.
    """

    async def create_job(self, record: JobRecord, request: bytes) -> Result[JobRecord]:
        """
        Store a record with its request, and queue the job.

        Returns the record as it is stored; the store may have chosen its `job_id`.
        """
        ...

    async def update_job_status(
        self, job_id: str, status: JobStatus, **fields: Any
    ) -> Result[JobRecord]:
        """Change the status, and the given fields of `JobRecord` with it."""
        ...

    async def get_job(self, job_id: str) -> Result[JobRecord]:
        """Return a record."""
        ...

    async def get_request(self, job_id: str) -> Result[bytes]:
        """Return the request with which a record was created."""
        ...

    async def get_user_jobs(
        self, user: str, feature: str | None = None
    ) -> Result[list[JobRecord]]:
        """Return a user's records, newest first; `feature` is a name in records."""
        ...
