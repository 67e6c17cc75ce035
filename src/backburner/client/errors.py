"""
The exceptions of the clients.

ClientError          code, status, request_id, retry_after
├── Denied           no key, or the key lacks permission  → 401, 403
├── NotFound         missing, or of another owner         → 404
├── Conflict         the state or the key forbids it      → 409, 422 by its code
├── RateLimited      a rate limit was exceeded            → 429
├── Unavailable      no response, or a server error       → none, 5xx
├── JobFailed        the job ended without a result
├── NotYet           the job had not ended at the timeout
├── PollTimeout      a feature's job had not ended at the last poll
├── PollAborted      the caller stopped polling
└── WebhookError     a webhook is not signed correctly or not current
"""

from collections.abc import Mapping
from typing import Any, cast

from backburner.shapes.jobs import Job


class ClientError(Exception):
    """The request failed, or the server refused it."""

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
        """The HTTP status; `None` if there was no response."""
        self.request_id = request_id
        self.retry_after = retry_after
        """The wait that the server demands, in seconds."""


class Denied(ClientError):
    """The API key is missing, invalid or lacks permission."""


class NotFound(ClientError):
    """The object does not exist or belongs to another owner."""


class Conflict(ClientError):
    """The state does not allow it, or the idempotency key was used for another body."""


class RateLimited(ClientError):
    """A rate limit was exceeded; retry later."""


class Unavailable(ClientError):
    """The server cannot be reached, or cannot serve the request at the moment."""


class JobFailed(ClientError):
    """The job ended without a result; `job` has the reason."""

    def __init__(self, job: Job) -> None:
        error = job["error"]
        reason = f": {error['code']}, {error['message']}" if error else ""
        super().__init__(
            f"job {job['id']} {job['state']}{reason}",
            code=error["code"] if error else "JOB_FAILED",
        )
        self.job = job


class NotYet(ClientError, TimeoutError):
    """The job or flow had not ended at the timeout; it continues."""

    def __init__(self, seen: Mapping[str, Any]) -> None:
        kind = seen["id"].partition("_")[0]
        super().__init__(
            f"{kind} {seen['id']} is {seen['state']} and continues", code="NOT_YET"
        )
        self.job = cast("Job", seen)
        """The last known data."""


class PollTimeout(ClientError, TimeoutError):
    """A feature's job had not ended at the last poll; it continues."""

    def __init__(self) -> None:
        super().__init__(
            "Job processing timeout - please check status later", code="POLL_TIMEOUT"
        )


class PollAborted(ClientError):
    """The caller stopped polling; the job continues."""

    def __init__(self) -> None:
        super().__init__("polling was aborted; the job continues", code="POLL_ABORTED")


class WebhookError(ClientError):
    """A webhook is not signed by the server, or its timestamp is not current."""
