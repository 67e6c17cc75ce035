"""
Handles one delivery of a job's message to the worker.

The message is deleted when the job has ended. Otherwise `NotDone` is raised with the
number of seconds after which the message is to be delivered again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from boto3.dynamodb.conditions import Attr

from backburner_apps.features.aws.changes import Run
from backburner_apps.features.aws.dynamo_jobs import DynamoJobs
from backburner_apps.features.aws.items import (
    GRACE_SECONDS,
    Item,
    is_unsent,
    lease_until,
    record_of,
)
from backburner_apps.features.aws.jobs_table import FAILURES
from backburner_apps.features.catalogue import features
from backburner_apps.features.core.codes import INTERNAL_ERROR, INTERNAL_TEXT
from backburner_apps.features.core.errors import FeatureError
from backburner_apps.features.core.records import JobStatus, route_name
from backburner_apps.features.core.result import ResultCode
from backburner_apps.features.core.retrying import MAX_RECEIVES, delay_after
from backburner_apps.features.core.task import AsyncTaskHandler

Handler = AsyncTaskHandler[Any]
HandlerOf = Callable[[str, DynamoJobs], Handler]
"""Returns the handler of a feature by its name in routes."""


class NotDone(Exception):
    """The job has not ended: its message must be delivered again."""

    def __init__(self, cause: str, delay: float, *, is_error: bool = True) -> None:
        super().__init__(cause)
        self.cause = cause
        self.delay = delay
        """Seconds until the next delivery."""
        self.is_error = is_error


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery of a job to one run."""

    job_id: str
    run: Run
    jobs: DynamoJobs
    handler_of: HandlerOf

    async def process(self) -> str:
        """Run the job and return its outcome."""
        item = self._item()
        if item is None:
            return "NO_RECORD"
        feature = route_name(item["feature"])
        if feature not in features():
            raise self._later("UNKNOWN_FEATURE")
        handler = self.handler_of(feature, self.jobs)
        try:
            ended = await handler.execute(self.job_id)
        except Exception as error:
            raise await self._failed(handler, error) from error
        if ended.data is not None:
            return str(ended.data.status)
        return await self._refused(handler, ended.code)

    async def _failed(self, handler: Handler, error: Exception) -> NotDone:
        """Record a failure; the last one ends the job, its message goes to the DLQ."""
        code = error.code if isinstance(error, FeatureError) else INTERNAL_ERROR
        if self.run.receive < MAX_RECEIVES:
            self._release()
            return self._later(code, getattr(error, "retry_after", None))
        text = str(error) if isinstance(error, FeatureError) else INTERNAL_TEXT
        await handler.fail(self.job_id, code, text)
        return NotDone(code, 0.0)

    async def _refused(self, handler: Handler, code: ResultCode | None) -> str:
        """Return an ended job's outcome, or raise for one that another run holds."""
        if code is not ResultCode.CONFLICT:
            raise self._later(str(code))
        item = self._item()
        if item is None:
            return "NO_RECORD"
        if JobStatus(item["status"]).is_final:
            return "ENDED_BEFORE"
        seen = record_of(item, self.jobs.now())
        if seen.status.is_final:
            await handler.fail(self.job_id, str(seen.code), str(seen.error))
            return "GIVEN_UP"
        raise self._held(item)

    def _held(self, item: Item) -> NotDone:
        """Return the error for a job whose lease another run or its submit holds."""
        left = lease_until(item) - self.jobs.now().timestamp()
        left += GRACE_SECONDS if is_unsent(item) else 0
        is_less = Attr("attempts").lt(self.run.receive)
        self._note({"attempts": self.run.receive}, is_less)
        return NotDone("HELD", max(left, delay_after(self.run.receive)), is_error=False)

    def _release(self) -> None:
        """Release the lease, so that the next delivery need not wait for its expiry."""
        now = int(self.jobs.now().timestamp())
        self._note({"lease_until": now}, Attr("lease_token").eq(self.run.token))

    def _note(self, sets: dict[str, Any], condition: Any) -> None:
        is_running = Attr("status").eq(JobStatus.PROCESSING)
        try:
            self.jobs.table.update(self.job_id, sets, is_running & condition)
        except FAILURES:
            return

    def _item(self) -> Item | None:
        found = self.jobs.find(self.job_id)
        if found.code is ResultCode.NOT_FOUND:
            return None
        if found.data is None:
            raise self._later(str(found.code))
        return found.data

    def _later(self, cause: str, retry_after: float | None = None) -> NotDone:
        return NotDone(cause, delay_after(self.run.receive, retry_after))
