"""
`AsyncTaskHandler`, the base class of features.

A feature is a subclass in one file. It defines its request model and `process`, and
`validate_request` if it has further rules. It inherits everything else.
"""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from backburner_apps.features.core import codes
from backburner_apps.features.core.errors import FeatureError, ValidationFailed
from backburner_apps.features.core.limits import validate_text_length
from backburner_apps.features.core.ports import Deployment
from backburner_apps.features.core.records import (
    JobRecord,
    JobStatus,
    JobView,
    record_name,
)
from backburner_apps.features.core.request import (
    FeatureRequest,
    mistakes,
    texts_of,
)
from backburner_apps.features.core.result import Result, ResultCode

T = TypeVar("T", bound=BaseModel)
M = TypeVar("M", bound=BaseModel)


class AsyncTaskHandler(Generic[T]):
    """
    One feature: `T` is the model of its result.

    The deployment determines where records, results and files are stored and which
    model is called. A subclass runs unchanged in every deployment.
    """

    feature: ClassVar[str]
    """The name in routes, for example `gap-analysis`."""
    request_model: ClassVar[type[FeatureRequest]]
    """The model of its requests."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def validate_request(self, data: Any) -> FeatureRequest:
        """Return the request; raise `TooLarge` (413) or `ValidationFailed` (400)."""
        for name, text in texts_of(data):
            validate_text_length(text, name)
        try:
            return self.request_model.model_validate(data)
        except ValidationError as error:
            raise ValidationFailed(mistakes(error)) from None

    async def process(self, job_id: str, request: Any) -> T:
        """Return the result; `request.user_cv` is the CV's text, also for a file."""
        raise NotImplementedError

    async def ask(
        self, prompt: str, *, into: type[M], system: str, example: Callable[[], M]
    ) -> M:
        """Call the model; `example` returns the answer of the mock provider."""
        begun = self._deployment.seconds()
        try:
            return await self._deployment.model.ask(
                prompt, into=into, system=system, example=example
            )
        finally:
            took = self._deployment.seconds() - begun
            self._deployment.meter.asked(self.feature, took)

    async def submit(
        self, user_id: str, request_data: Any, feature: str
    ) -> Result[JobRecord]:
        """
        Store a job; it is durable when this returns.

        Raises `ValidationFailed` before anything is stored.
        """
        if record_name(feature) != record_name(self.feature):
            return Result.failed(ResultCode.UNKNOWN_FEATURE, f"not {self.feature}")
        request = self.validate_request(request_data)
        if request.user_cv_key is not None:
            await self._deployment.files.check(user_id, request.user_cv_key)
        record = JobRecord(
            user_id=user_id,
            feature=record_name(feature),
            created_at=self._deployment.now(),
        )
        body = request.model_dump_json(exclude_none=True).encode()
        created = await self._deployment.jobs.create_job(record, body)
        if created.data is not None and created.code is not ResultCode.REPLAYED:
            self._deployment.meter.submitted(created.data)
        return created

    async def execute(self, job_id: str) -> Result[JobRecord]:
        """
        Run a job once and record its outcome.

        A permanent failure is recorded and returned with `success` set. A retryable
        `FeatureError` and unexpected errors are raised, so that the job is delivered
        again. `CONFLICT` means that the job had already ended and was not run.
        """
        jobs, now = self._deployment.jobs, self._deployment.now
        started = await jobs.update_job_status(
            job_id, JobStatus.PROCESSING, started_at=now()
        )
        if not started.success or started.data is None:
            return started
        record, begun = started.data, self._deployment.seconds()
        try:
            key = await self._stored_result(record)
        except FeatureError as error:
            if error.is_retryable:
                raise
            return await self.fail(job_id, error.code, str(error))
        finally:
            took = self._deployment.seconds() - begun
            self._deployment.meter.processed(self.feature, took)
        return await self._end(
            job_id, JobStatus.COMPLETED, completed_at=now(), result_key=key
        )

    async def fail(self, job_id: str, code: str, error: str) -> Result[JobRecord]:
        """Record that a job has failed permanently."""
        failed_at = self._deployment.now()
        return await self._end(
            job_id, JobStatus.FAILED, failed_at=failed_at, code=code, error=error
        )

    async def cancel(self, job_id: str, user_id: str) -> Result[JobRecord]:
        """End a user's job; `CONFLICT` if it has ended already."""
        found = await self.find(job_id, user_id)
        if not found.success:
            return found
        return await self.fail(job_id, codes.CANCELLED, codes.CANCELLED_TEXT)

    async def find(self, job_id: str, user_id: str | None = None) -> Result[JobRecord]:
        """Return a record of this feature; one of another user is `NOT_FOUND`."""
        found = await self._deployment.jobs.get_job(job_id)
        record = found.data
        if record is None:
            return found
        is_theirs = user_id is None or record.user_id == user_id
        if not is_theirs or record.feature != record_name(self.feature):
            return Result.failed(ResultCode.NOT_FOUND, f"no job {job_id[:100]!r}")
        return found

    async def poll(self, job_id: str, user_id: str | None = None) -> Result[JobView]:
        """Return a job as its user sees it, with a fresh URL of its result."""
        found = await self.find(job_id, user_id)
        record = found.data
        if record is None:
            return Result(success=False, error=found.error, code=found.code)
        if record.status is not JobStatus.COMPLETED:
            return Result.of(JobView.of(record))
        url = await self._deployment.results.sign(record)
        if url is None:
            return Result.failed(ResultCode.NOT_FOUND, "the result has expired")
        return Result.of(JobView.of(record, url))

    async def _stored_result(self, record: JobRecord) -> str:
        """Return the key of the result: that of an earlier run, or of this one."""
        results = self._deployment.results
        key = await results.find(record)
        if key is not None:
            return key
        answer = await self._processed(record)
        return await results.write(record, answer.model_dump_json().encode())

    async def _processed(self, record: JobRecord) -> T:
        body = (await self._deployment.jobs.get_request(record.job_id)).unwrap()
        request = self.request_model.model_validate_json(body)
        seconds = self._deployment.timeout_seconds
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self.process(
                    record.job_id, await self._with_text(record, request)
                )
        except TimeoutError:
            if not limit.expired():
                raise
            text = codes.timeout_text(seconds)
            raise FeatureError(text, code=codes.TIMEOUT) from None

    async def _with_text(
        self, record: JobRecord, request: FeatureRequest
    ) -> FeatureRequest:
        """Return the request with the text of an uploaded CV."""
        if request.user_cv_key is None:
            return request
        files = self._deployment.files
        text = await files.read_text(record.user_id, request.user_cv_key)
        validate_text_length(text, "the text of the file")
        if not text.strip():
            raise ValidationFailed("the file has no text")
        return request.model_copy(update={"user_cv": text})

    async def _end(
        self, job_id: str, status: JobStatus, **fields: Any
    ) -> Result[JobRecord]:
        keep = self._deployment.retention.after(status)
        expires = self._deployment.now() + keep
        ended = await self._deployment.jobs.update_job_status(
            job_id, status, ttl=int(expires.timestamp()), **fields
        )
        if ended.success and ended.data is not None:
            self._deployment.meter.ended(ended.data)
        return ended
