"""Converts job records to and from items of the DynamoDB table."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from backburner_apps.features.core.codes import (
    INTERNAL_ERROR,
    INTERNAL_TEXT,
    NOT_QUEUED_TEXT,
)
from backburner_apps.features.core.records import JobRecord, JobStatus, rfc3339
from backburner_apps.features.core.retrying import MAX_RECEIVES

SORT_KEY: Final = "METADATA"
INDEX: Final = "gsi1"
REQUEST: Final = "request"
"""The attribute with a request that fits into the item."""
REQUEST_KEY: Final = "request_s3_key"
"""The attribute with the name of the object that contains a larger request."""
GRACE_SECONDS: Final = 60
"""Maximum assumed difference between the clocks of two functions."""
ATTRIBUTES: Final = {"result_key": "result_s3_key"}
"""Fields of `JobRecord` whose attribute has another name."""
LISTED: Final = (
    *("job_id", "user_id", "feature", "status", "created_at", "started_at"),
    *("completed_at", "failed_at", "result_s3_key", "error", "code", "attempts"),
    *("lease_token", "lease_until", "ttl"),
)
"""The attributes in the index besides its keys, without the request."""

Item = Mapping[str, Any]


def key_of(job_id: str) -> dict[str, str]:
    """Return the primary key of a job's item."""
    return {"pk": f"JOB#{job_id}", "sk": SORT_KEY}


def user_key(user: str) -> str:
    """Return the index's partition key of a user's items."""
    return f"USER#{user}"


def feature_prefix(feature: str) -> str:
    """Return the prefix of the index's sort keys of a feature's items."""
    return f"JOB#{feature}#"


def item_of(record: JobRecord) -> dict[str, Any]:
    """Return a record as an item, without its request."""
    fields = record.model_dump(exclude_none=True)
    return {
        **key_of(record.job_id),
        "gsi1pk": user_key(record.user_id),
        "gsi1sk": feature_prefix(record.feature) + rfc3339(record.created_at),
        **{attribute_of(name): stored(value) for name, value in fields.items()},
    }


def key_item_of(record: JobRecord, key: str, request: bytes, until: int) -> Item:
    """Return the item of an idempotency key, which refers to its job."""
    named = json.dumps([record.user_id, record.feature, key]).encode()
    return {
        "pk": f"KEY#{hashlib.sha256(named).hexdigest()}",
        "sk": SORT_KEY,
        "job_id": record.job_id,
        "request_hash": hashlib.sha256(request).hexdigest(),
        "ttl": until,
    }


def attribute_of(field: str) -> str:
    """Return the attribute that stores a field of `JobRecord`."""
    return ATTRIBUTES.get(field, field)


def stored(value: Any) -> Any:
    """Return a value of a record as DynamoDB stores it."""
    if isinstance(value, datetime):
        return rfc3339(value)
    return str(value) if isinstance(value, JobStatus) else value


def record_of(item: Item, now: datetime) -> JobRecord:
    """Return an item's record, as failed if no worker will process it any more."""
    names = {attribute_of(field): field for field in JobRecord.model_fields}
    fields = {names[name]: _plain(v) for name, v in item.items() if name in names}
    record = JobRecord.model_validate(fields)
    return _given_up(record, item) if is_given_up(item, now) else record


def lease_until(item: Item) -> float:
    """Return when the lease of the job expires, in seconds since the epoch."""
    return float(item.get("lease_until", 0))


def is_given_up(item: Item, now: datetime) -> bool:
    """Return whether no lease is valid and no worker will begin the job."""
    is_over = lease_until(item) + GRACE_SECONDS <= now.timestamp()
    if is_unsent(item):
        return is_over
    is_running = item.get("status") == JobStatus.PROCESSING
    is_last = int(item.get("attempts", 0)) >= MAX_RECEIVES
    return is_running and is_last and is_over


def is_unsent(item: Item) -> bool:
    """Return whether the submitting function has not recorded its message as sent."""
    return item.get("status") == JobStatus.PENDING and "lease_until" in item


def is_expired(item: Item, now: datetime) -> bool:
    """Return whether the item has expired; DynamoDB deletes it up to days later."""
    return int(item.get("ttl", now.timestamp() + 1)) <= now.timestamp()


def _given_up(record: JobRecord, item: Item) -> JobRecord:
    ended = datetime.fromtimestamp(lease_until(item), tz=UTC)
    return record.model_copy(
        update={
            "status": JobStatus.FAILED,
            "failed_at": ended,
            "code": INTERNAL_ERROR,
            "error": NOT_QUEUED_TEXT if is_unsent(item) else INTERNAL_TEXT,
        }
    )


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value
