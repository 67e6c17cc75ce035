"""
Conditions on changes of an item: the status never goes back, one worker at a time.

A worker holds a job by a lease, which has the token of its run and an expiry time. The
submitting function holds the first lease until it has sent the message. If that lease
expires first, the message may not exist: the job has failed, and no worker begins it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from boto3.dynamodb.conditions import Attr, ConditionBase

from backburner_apps.features.aws.items import attribute_of, stored
from backburner_apps.features.core.records import JobStatus
from backburner_apps.features.core.retrying import MAX_RECEIVES

LEASE_SECONDS: Final = 660
"""More than the maximum run time (600 s), less than the visibility timeout (900 s)."""
SEND_SECONDS: Final = 60
"""More than the timeout of the submitting function (30 s)."""


@dataclass(frozen=True, slots=True)
class Run:
    """One delivery of a job to a worker."""

    receive: int = 1
    """How often the message has been received, including this time."""
    token: str = field(default_factory=lambda: uuid4().hex)
    """Identifies this run."""


def condition_of(status: JobStatus, run: Run | None, now: int) -> ConditionBase:
    """Return the condition for a change to a status; `now` is in seconds."""
    if status is JobStatus.PROCESSING:
        return _claimable(run, now)
    is_open = Attr("status").is_in([JobStatus.PENDING, JobStatus.PROCESSING])
    if run is None:
        return is_open
    is_mine, until = Attr("lease_token").eq(run.token), Attr("lease_until")
    if status is JobStatus.COMPLETED:
        return is_open & is_mine & until.gt(now)
    return is_open & (is_mine | until.not_exists() | until.lte(now))


def changed(
    status: JobStatus, fields: Mapping[str, Any], run: Run | None, now: int
) -> dict[str, Any]:
    """Return the attributes to set with a status."""
    given = {name: value for name, value in fields.items() if value is not None}
    sets = {attribute_of(name): stored(value) for name, value in given.items()}
    lease = _lease(run, now) if status is JobStatus.PROCESSING else {}
    return {"status": str(status), **sets, **lease}


def update_of(sets: Mapping[str, Any]) -> dict[str, Any]:
    """Return assignments as arguments of DynamoDB; keep the first `started_at`."""
    assigned = [_assigned(name) for name in sets]
    return {
        "UpdateExpression": f"SET {', '.join(assigned)}",
        "ExpressionAttributeNames": {f"#{name}": name for name in sets},
        "ExpressionAttributeValues": {f":{n}": value for n, value in sets.items()},
    }


def send_lease(now: float) -> dict[str, Any]:
    """Return the lease of a new item, which is removed when its message is sent."""
    return {"lease_until": int(now) + SEND_SECONDS}


def _claimable(run: Run | None, now: int) -> ConditionBase:
    status, until = Attr("status"), Attr("lease_until")
    waits = status.eq(JobStatus.PENDING) & (until.not_exists() | until.gt(now))
    is_left = until.lte(now) & Attr("attempts").lt(MAX_RECEIVES)
    # A call whose answer was lost is repeated by the library: it has the token then.
    is_free = is_left if run is None else is_left | Attr("lease_token").eq(run.token)
    begun = status.eq(JobStatus.PROCESSING) & is_free
    return waits | begun


def _lease(run: Run | None, now: int) -> dict[str, Any]:
    run = run or Run()
    until = now + LEASE_SECONDS
    return {"lease_token": run.token, "lease_until": until, "attempts": run.receive}


def _assigned(name: str) -> str:
    if name == "started_at":
        return "#started_at = if_not_exists(#started_at, :started_at)"
    return f"#{name} = :{name}"
