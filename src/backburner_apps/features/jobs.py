"""`JobsDalHandler` over Backburner: one for routes, and one for a running job."""

import re
from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar

import orjson

from backburner import (
    Backburner,
    Capability,
    Context,
    IllegalTransition,
    Job,
    JobNotFound,
    Owner,
    StoreUnavailable,
    SubmitOptions,
)
from backburner_apps.features.core.codes import CANCELLED
from backburner_apps.features.core.records import JobRecord, JobStatus, route_name
from backburner_apps.features.core.result import Result, ResultCode
from backburner_apps.features.records import (
    CAPABILITY,
    QUEUE,
    bare_id,
    engine_id,
    feature_of,
    moment,
    record_of,
)
from backburner_apps.features.settings import FeaturesSettings

T = TypeVar("T")

MOST_LISTED: Final = 200
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ServerJobs:
    """The records of one user, for routes."""

    def __init__(
        self,
        backburner: Backburner,
        owner: Owner,
        runs: Mapping[str, Capability[Any, Any]],
        options: SubmitOptions | None = None,
    ) -> None:
        """
        Take the capability of each feature, by the feature's name in records.

        `options` apply to jobs that are created here, for example `request_id`.
        """
        self._backburner = backburner
        self._runs = runs
        self._owner = owner
        self._options: SubmitOptions = {**(options or {}), "owner": owner}
        self._settings = backburner.settings_of(FeaturesSettings)

    async def create_job(self, record: JobRecord, request: bytes) -> Result[JobRecord]:
        """Submit the job; the engine chooses its id."""
        run, value = self._runs[record.feature], orjson.loads(request)
        submitting = self._backburner.submit(run, value, **self._options)
        ticket = await _attempted(submitting)
        if ticket.data is None:
            return Result(success=False, error=ticket.error, code=ticket.code)
        stored = await self.get_job(bare_id(ticket.data.id))
        if stored.data is None or not ticket.data.replayed:
            return _as_created(stored)
        return Result(success=True, data=stored.data, code=ResultCode.REPLAYED)

    async def update_job_status(
        self, job_id: str, status: JobStatus, **fields: Any
    ) -> Result[JobRecord]:
        """Cancel a job; all other changes are made by the engine."""
        if status is not JobStatus.FAILED or fields.get("code") != CANCELLED:
            message = "only the engine changes this status"
            return Result.failed(ResultCode.CONFLICT, message)
        if not _UUID.fullmatch(job_id):
            return _missing(job_id)
        cancelling = self._backburner.engine.cancel(engine_id(job_id), self._owner)
        return self._record(job_id, await _attempted(cancelling))

    async def get_job(self, job_id: str) -> Result[JobRecord]:
        """Return the record of the user's job, or `NOT_FOUND` if it has expired."""
        if not _UUID.fullmatch(job_id):
            return _missing(job_id)
        finding = self._backburner.engine.find(engine_id(job_id), self._owner)
        return self._record(job_id, await _attempted(finding))

    async def get_request(self, job_id: str) -> Result[bytes]:
        """Return the input of the user's job."""
        job = await _attempted(self._backburner.find(engine_id(job_id), self._owner))
        if job.data is None:
            return Result(success=False, error=job.error, code=job.code)
        return Result.of(job.data.input.encode())

    async def get_user_jobs(
        self, user: str, feature: str | None = None
    ) -> Result[list[JobRecord]]:
        """Return the newest 200 records of the user."""
        capability = None if feature is None else CAPABILITY + route_name(feature)
        owner = Owner(self._owner.tenant, user)
        listing = self._backburner.jobs(
            owner, queue=QUEUE, capability=capability, limit=MOST_LISTED
        )
        listed = await _attempted(listing)
        if listed.data is None:
            return Result(success=False, error=listed.error, code=listed.code)
        records = (self._current(job) for job in listed.data)
        return Result.of([record for record in records if record is not None])

    def _record(self, job_id: str, job: Result[Job]) -> Result[JobRecord]:
        if job.data is None:
            return Result(success=False, error=job.error, code=job.code)
        record = self._current(job.data)
        return _missing(job_id) if record is None else Result.of(record)

    def _current(self, job: Job) -> JobRecord | None:
        """Return the record of a job, unless it has expired."""
        settings = self._settings
        record = record_of(job, settings.retention, settings.timeout_seconds)
        if record is None or record.ttl is None:
            return record
        return record if record.ttl * 1000 > self._backburner.engine.now() else None


class AttemptJobs:
    """The record of a running job, whose status the engine stores."""

    def __init__(self, ctx: Context, request: Any) -> None:
        self._ctx = ctx
        self._request = request

    async def create_job(self, record: JobRecord, request: bytes) -> Result[JobRecord]:
        """Refuse: a running job creates no others."""
        del record, request
        return Result.failed(ResultCode.CONFLICT, "jobs are created by routes")

    async def update_job_status(
        self, job_id: str, status: JobStatus, **fields: Any
    ) -> Result[JobRecord]:
        """
        Return the record as it will be when the handler returns; write nothing.

        The engine's claim has made the job `PROCESSING`, and its settlement will end
        it, each by a compare-and-set.
        """
        record = await self.get_job(job_id)
        if record.data is None:
            return record
        return Result.of(record.data.model_copy(update={"status": status, **fields}))

    async def get_job(self, job_id: str) -> Result[JobRecord]:
        """Return the record of the running job."""
        job = self._ctx.job
        feature = feature_of(job.capability)
        if job_id != bare_id(job.id) or feature is None:
            return _missing(job_id)
        record = JobRecord(
            job_id=job_id,
            user_id=job.owner.user,
            feature=feature,
            status=JobStatus.PROCESSING,
            created_at=moment(job.created_at),
            attempts=job.attempt,
        )
        return Result.of(record)

    async def get_request(self, job_id: str) -> Result[bytes]:
        """Return the input of the running job."""
        del job_id
        return Result.of(orjson.dumps(self._request))

    async def get_user_jobs(
        self, user: str, feature: str | None = None
    ) -> Result[list[JobRecord]]:
        """Refuse: a running job has access only to itself."""
        del user, feature
        return Result.failed(ResultCode.CONFLICT, "jobs are listed by routes")


def _as_created(stored: Result[JobRecord]) -> Result[JobRecord]:
    """Return a record as it was created, even if a worker has already begun."""
    if stored.data is None:
        return stored
    kept = {"job_id", "user_id", "feature", "created_at"}
    return Result.of(JobRecord(**stored.data.model_dump(include=kept)))


def _missing(job_id: str) -> Result[Any]:
    return Result.failed(ResultCode.NOT_FOUND, f"there is no job {job_id[:100]!r}")


async def _attempted(access: Awaitable[T]) -> Result[T]:
    """Return the value or the error of a call of the engine as a `Result`."""
    try:
        return Result.of(await access)
    except JobNotFound as error:
        return Result.failed(ResultCode.NOT_FOUND, str(error))
    except IllegalTransition as error:
        return Result.failed(ResultCode.CONFLICT, str(error))
    except StoreUnavailable as error:
        return Result.failed(ResultCode.STORE_ERROR, str(error))
