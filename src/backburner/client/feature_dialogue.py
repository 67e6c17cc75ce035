"""Requests and polling of features, without I/O."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NotRequired, TypedDict
from urllib.parse import quote

from backburner.client.dialogue import (
    Dialogue,
    Done,
    Emit,
    Pause,
    RequestPolicy,
    SendRequest,
    advance,
)
from backburner.client.errors import (
    ClientError,
    PollTimeout,
    RateLimited,
    Unavailable,
)

EVERY_SECONDS: Final = 5.0
TIMES: Final = 60
LONGEST_PAUSE: Final = 60.0
FINAL: Final = frozenset({"COMPLETED", "FAILED"})


class FeatureJob(TypedDict):
    """A job of a feature, as its user sees it."""

    job_id: str
    status: str
    """`PENDING`, `PROCESSING`, `COMPLETED` or `FAILED`."""
    created_at: str
    feature: NotRequired[str]
    started_at: NotRequired[str]
    completed_at: NotRequired[str]
    failed_at: NotRequired[str]
    error: NotRequired[str]
    code: NotRequired[str]
    result_url: NotRequired[str]


class Upload(TypedDict):
    """The URL for an upload, and the key that identifies the file."""

    user_cv_key: str
    method: str
    upload_url: str
    headers: dict[str, str]
    expires_at: str


Progress = Callable[[FeatureJob], object]
"""Called with the job after each poll."""


def submit(
    request_policy: RequestPolicy,
    feature: str,
    request: Mapping[str, Any],
    key: str | None,
) -> Dialogue[FeatureJob]:
    """Submit a request; with a key, it is safe to repeat."""
    return request_policy.send(_path(feature, "submit"), request, key)


def offer(request_policy: RequestPolicy, feature: str, size: int) -> Dialogue[Upload]:
    """Request a URL for the upload of a file of this size in bytes."""
    return request_policy.send(_path(feature, "uploads"), {"size": size}, None)


def status(
    request_policy: RequestPolicy, feature: str, job_id: str
) -> Dialogue[FeatureJob]:
    """Return the state of a job."""
    request = SendRequest("GET", _path(feature, "status", job_id))
    return request_policy.ask(request)


def poll(
    feature: str, job_id: str, every: float = EVERY_SECONDS, times: int = TIMES
) -> Dialogue[FeatureJob]:
    """
    Emit the job after each poll; return it when it has ended.

    After a temporary error the interval doubles each time. Other errors are raised,
    and `PollTimeout` after the last poll.
    """
    misses = 0
    for polled in range(1, times + 1):
        pause = every
        try:
            seen = yield from status(RequestPolicy(retries=0), feature, job_id)
        except ClientError as error:
            if not isinstance(error, (RateLimited, Unavailable)):
                raise
            misses += 1
            demanded = max(every * 2**misses, error.retry_after or 0.0)
            pause = min(demanded, max(LONGEST_PAUSE, every))
        else:
            misses = 0
            yield Emit(seen)
            if seen["status"] in FINAL:
                return seen
        if polled < times:
            yield Pause(pause)
    raise PollTimeout


def watched(
    dialogue: Dialogue[FeatureJob],
    on_progress: Progress | None,
    wait: Callable[[float], None] | None = None,
) -> Dialogue[FeatureJob]:
    """Call `on_progress` with each emitted job; use `wait` for pauses if given."""
    step = advance(dialogue, None)
    while not isinstance(step, Done):
        answer = None
        if isinstance(step, Emit):
            if on_progress is not None:
                on_progress(step.value)
        elif isinstance(step, Pause) and wait is not None:
            wait(step.seconds)
        else:
            try:
                answer = yield step
            except ClientError as error:
                answer = error
        step = advance(dialogue, answer)
    return step.value


def _path(feature: str, *rest: str) -> str:
    return "/".join(["/api", *(quote(part, safe="") for part in (feature, *rest))])
