"""`JobsDalHandler` over a DynamoDB table; an SQS message contains only a job's id."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from boto3.dynamodb.conditions import Key
from botocore.exceptions import BotoCoreError, ClientError

from backburner_apps.features.aws.aws_errors import CANCELLED, LOST, code_of, judged
from backburner_apps.features.aws.bucket import Bucket, request_key
from backburner_apps.features.aws.changes import (
    Run,
    changed,
    condition_of,
    send_lease,
)
from backburner_apps.features.aws.items import (
    REQUEST,
    REQUEST_KEY,
    Item,
    feature_prefix,
    is_expired,
    is_unsent,
    item_of,
    key_item_of,
    record_of,
    user_key,
)
from backburner_apps.features.aws.jobs_table import FAILURES, JobsTable, old_item
from backburner_apps.features.core.codes import INTERNAL_ERROR, NOT_QUEUED_TEXT
from backburner_apps.features.core.records import JobRecord, JobStatus, Retention
from backburner_apps.features.core.result import DataAccessError, Result, ResultCode

MAX_IN_ITEM: Final = 256 * 1024
"""Maximum size of a request in an item, in bytes; larger ones are in the bucket."""


@dataclass(frozen=True, slots=True)
class DynamoJobs:
    """Stores job records, each as one item; with a `run` it acts for a worker."""

    table: JobsTable
    bucket: Bucket
    now: Callable[[], datetime]
    send: Callable[[str], None] | None = None
    """Sends a message; a function that submits nothing has none."""
    run: Run | None = None
    retention: Retention = field(default_factory=Retention)
    key: str | None = None
    """The idempotency key of a job that is created here."""

    async def create_job(self, record: JobRecord, request: bytes) -> Result[JobRecord]:
        # A message lives for 14 days at most, in the dead-letter queue.
        expires = record.created_at + self.retention.failed
        record = record.model_copy(update={"ttl": int(expires.timestamp())})
        try:
            first = self._stored(record, request)
        except DataAccessError as error:
            return Result.failed(error.code, error.message)
        except FAILURES as error:
            return judged(error)
        return await self._sent(record) if first is None else await self._again(first)

    async def update_job_status(
        self, job_id: str, status: JobStatus, **fields: Any
    ) -> Result[JobRecord]:
        now = int(self.now().timestamp())
        sets = changed(status, fields, self.run, now)
        try:
            item = self.table.update(job_id, sets, condition_of(status, self.run, now))
        except ClientError as error:
            if code_of(error) != LOST:
                return judged(error)
            return self._lost(job_id, status, old_item(error))
        except BotoCoreError as error:
            return judged(error)
        return Result.of(record_of(item, self.now()))

    async def get_job(self, job_id: str) -> Result[JobRecord]:
        found = self.find(job_id)
        if found.data is None:
            return Result(success=False, error=found.error, code=found.code)
        return Result.of(record_of(found.data, self.now()))

    async def get_request(self, job_id: str) -> Result[bytes]:
        found = self.find(job_id, REQUEST, REQUEST_KEY)
        if found.data is None:
            return Result(success=False, error=found.error, code=found.code)
        if REQUEST in found.data:
            return Result.of(bytes(found.data[REQUEST]))
        try:
            return Result.of(self.bucket.read(found.data[REQUEST_KEY]))
        except DataAccessError as error:
            return Result.failed(error.code, str(error))

    async def get_user_jobs(
        self, user: str, feature: str | None = None
    ) -> Result[list[JobRecord]]:
        key = Key("gsi1pk").eq(user_key(user))
        if feature is not None:
            key &= Key("gsi1sk").begins_with(feature_prefix(feature))
        try:
            items = self.table.query(key)
        except FAILURES as error:
            return judged(error, self.table.name)
        now = self.now()
        records = [record_of(i, now) for i in items if not is_expired(i, now)]
        return Result.of(sorted(records, key=lambda r: r.created_at, reverse=True))

    def find(self, job_id: str, *more: str) -> Result[Item]:
        """Return the item of a job that has not expired."""
        try:
            item = self.table.get(job_id, *more)
        except FAILURES as error:
            return judged(error)
        if item is None or is_expired(item, self.now()):
            return _not_found(job_id)
        return Result.of(item)

    def _stored(self, record: JobRecord, request: bytes) -> str | None:
        """Store an item; return the id of an earlier job with its key, or `None`."""
        now = int(self.now().timestamp())
        lease = {} if self.send is None else send_lease(now)
        item = {**item_of(record), **self._kept(record, request), **lease}
        if self.key is None:
            self.table.put(item)
            return None
        until = now + int(self.retention.completed.total_seconds())
        key = key_item_of(record, self.key, request, until)
        try:
            self.table.put_keyed(item, key, now)
        except ClientError as error:
            first = self.table.get_key(key) if code_of(error) == CANCELLED else {}
            if not first or is_expired(first, self.now()):
                raise
            if first["request_hash"] != key["request_hash"]:
                raise _key_conflict() from None
            return str(first["job_id"])
        return None

    async def _again(self, job_id: str) -> Result[JobRecord]:
        """Return the job with the same key, after sending its message if necessary."""
        found = self.find(job_id)
        if found.data is None:
            return Result(success=False, error=found.error, code=found.code)
        record = record_of(found.data, self.now())
        if is_unsent(found.data) and not record.status.is_final:
            sent = await self._sent(record)
            if not sent.success:
                return sent
        return Result(success=True, data=record, code=ResultCode.REPLAYED)

    def _kept(self, record: JobRecord, request: bytes) -> dict[str, Any]:
        if len(request) <= MAX_IN_ITEM:
            return {REQUEST: request}
        key = request_key(record)
        self.bucket.write_once(key, request)
        return {REQUEST_KEY: key}

    async def _sent(self, record: JobRecord) -> Result[JobRecord]:
        """Send the message; if the function dies before, the lease shows it."""
        if self.send is None:
            return Result.of(record)
        try:
            self.send(json.dumps({"job_id": record.job_id}))
            self.table.mark_sent(record.job_id)
        except FAILURES as error:
            # The message may have been sent all the same: its worker finds an end.
            await self.update_job_status(
                record.job_id,
                JobStatus.FAILED,
                failed_at=self.now(),
                code=INTERNAL_ERROR,
                error=NOT_QUEUED_TEXT,
            )
            return judged(error)
        return Result.of(record)

    def _lost(self, job_id: str, status: JobStatus, item: Item) -> Result[JobRecord]:
        """Return the result of a failed condition; success if the change was ours."""
        if not item:
            return _not_found(job_id)
        is_ours = self.run is not None and item.get("lease_token") == self.run.token
        if is_ours and item["status"] == status:
            return Result.of(record_of(item, self.now()))
        return Result.failed(
            ResultCode.CONFLICT, f"the job is {item['status']}: it cannot be {status}"
        )


def _key_conflict() -> DataAccessError:
    text = "the Idempotency-Key was used with another request: use a new one"
    return DataAccessError(ResultCode.IDEMPOTENCY_CONFLICT, text)


def _not_found(job_id: str) -> Result[Any]:
    return Result.failed(ResultCode.NOT_FOUND, f"no job {job_id[:100]!r}")
