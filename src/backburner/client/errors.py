"""
What a client raises.

ClientError          code, status, request_id, retry_after
├── Denied           no key, or not allowed               → 401, 403
├── NotFound         no such thing, or somebody else's    → 404
├── Conflict         the state or the key forbids it      → 409, 422 by its code
├── RateLimited      too much, too soon                   → 429
├── Unavailable      no answer, or not now                → none, 5xx
├── JobFailed        the job ended without a result
├── NotYet           the job goes on after the wait
├── PollTimeout      a feature's job goes on after the last poll
├── PollAborted      the caller stopped polling
└── WebhookError     a webhook is not the server's, or not of now
"""

from collections.abc import Mapping
from typing import Any, cast

from backburner.shapes.jobs import Job


class ClientError(Exception):
    """The server could not be asked, or did not do what it was asked."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        """The HTTP status; `None` if there was no answer."""
        self.request_id = request_id
        self.retry_after = retry_after
        """How many seconds the server asks to be left alone."""


class Denied(ClientError):
    """The key is missing, wrong, or not good for this."""


class NotFound(ClientError):
    """There is no such thing, or it is somebody else's."""


class Conflict(ClientError):
    """The job's state does not allow it, or the key was used for another body."""


class RateLimited(ClientError):
    """The server asks to come back later."""


class Unavailable(ClientError):
    """The server cannot be reached, or cannot do it now."""


class JobFailed(ClientError):
    """The job ended without a result; `job` says why."""

    def __init__(self, job: Job) -> None:
        error = job["error"]
        reason = f": {error['code']}, {error['message']}" if error else ""
        super().__init__(
            f"job {job['id']} {job['state']}{reason}",
            code=error["code"] if error else "JOB_FAILED",
        )
        self.job = job


class NotYet(ClientError, TimeoutError):
    """The time to wait is over; the job or flow goes on."""

    def __init__(self, seen: Mapping[str, Any]) -> None:
        kind = seen["id"].partition("_")[0]
        super().__init__(
            f"{kind} {seen['id']} is {seen['state']} and goes on", code="NOT_YET"
        )
        self.job = cast("Job", seen)
        """As it was last seen."""


class PollTimeout(ClientError, TimeoutError):
    """A feature's job had not ended at the last poll; it goes on."""

    def __init__(self) -> None:
        super().__init__(
            "Job processing timeout - please check status later", code="POLL_TIMEOUT"
        )


class PollAborted(ClientError):
    """Polling was stopped by the caller; the job goes on."""

    def __init__(self) -> None:
        super().__init__("polling was aborted; the job goes on", code="POLL_ABORTED")


class WebhookError(ClientError):
    """What came in is no webhook of the server's, or one from another time."""
