"""
A small client of the HTTP API, for other programs and for the command line.

What the server sends is given back as plain data under typed names; what it refuses
is a `ClientError`. Reading a job to its end survives a server that goes and returns.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, NotRequired, Self, TypedDict, cast
from urllib.parse import quote

import httpx2

from backburner.domain.job import FINAL

DEFAULT_URL: Final = "http://127.0.0.1:8765"
LONGEST_WAIT: Final = 60
"""What the server allows in `Prefer: wait`."""
PAUSES: Final = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
"""How long to wait before each next try to reach a server that was there."""
EARLY_SECONDS: Final = 0.5
"""A server that stops, or is full, answers before the time: do not press it."""
SILENCE_SECONDS: Final = 45.0
"""An event stream says something every 15 s; after this long it is dead."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class JobError(TypedDict):
    """Why a job ended or was put back."""

    code: str
    message: str
    retryable: bool
    retry_after: NotRequired[float | None]


class Progress(TypedDict):
    """How far a job is."""

    done: float
    total: float
    message: NotRequired[str]


class Job(TypedDict):
    """A job as the server shows it, with more than is named here."""

    id: str
    capability: str
    queue: str
    state: str
    priority: int
    tags: list[str]
    attempt: int
    max_attempts: int
    generation: int
    crashes: int
    progress: Progress | None
    error: JobError | None
    created_at: str
    run_at: str | None
    started_at: str | None
    finished_at: str | None
    input: NotRequired[Any]
    output: NotRequired[Any]
    """There when one job is asked for and it has succeeded."""
    attempts: NotRequired[list[dict[str, Any]]]


class Event(TypedDict):
    """One line of a job's history."""

    seq: int
    job_id: str
    n: int
    type: str
    at: str
    data: dict[str, Any]


class FailureGroup(TypedDict):
    """Dead letters that failed alike."""

    fingerprint: str
    capability: str
    code: str
    count: int
    first_at: str
    last_at: str
    sample_id: str


class Retried(TypedDict):
    """What a retry of many came to."""

    matched: int
    retried: int
    dry_run: bool


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


class Client:
    """Talks to one server. Close it, or use it in a `with` block."""

    def __init__(self, url: str = DEFAULT_URL, *, timeout: float = 30.0) -> None:
        self.url = url.rstrip("/")
        try:
            host = httpx2.URL(self.url).host
        except httpx2.InvalidURL as error:
            raise _unreachable(self.url, error) from error
        self._http = httpx2.Client(
            base_url=self.url,
            timeout=timeout,
            # A proxy for the world is of no use on the way to this very machine.
            trust_env=host not in _LOOPBACK,
        )
        self._timeout = timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def ready(self) -> None:
        """Raise unless the server can take jobs."""
        self._ask("GET", "/readyz")

    def submit(
        self,
        capability: str,
        value: Any,
        *,
        key: str | None = None,
        **options: Any,
    ) -> Job:
        """Submit a job, durable when this returns. Options: the fields of the API."""
        body = {"capability": capability, "input": value, **_given(options)}
        # Escaped to ASCII: half a character is for the server to refuse.
        content = json.dumps(body, allow_nan=False)
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        told = self._ask("POST", "/v1/jobs", content=content, headers=headers)
        return cast("Job", told)

    def get(self, job_id: str, *, wait: float = 0) -> Job:
        """Return the job, at most `wait` seconds later, at once when it has ended."""
        seconds = min(LONGEST_WAIT, math.ceil(wait))
        headers = {"Prefer": f"wait={seconds}"} if seconds > 0 else {}
        timeout = self._timeout + seconds
        path = _job_path(job_id)
        return cast("Job", self._ask("GET", path, headers=headers, timeout=timeout))

    def follow(
        self, job_id: str, *, timeout: float | None = None, every: float = LONGEST_WAIT
    ) -> Iterator[Job]:
        """Yield the job every so often, the last time when it ends or time is over."""
        ends = math.inf if timeout is None else time.monotonic() + timeout
        misses = 0
        while True:
            asked_at = time.monotonic()
            wait = max(0.0, min(every, ends - asked_at))
            try:
                job = self.get(job_id, wait=wait)
            except ClientError as error:
                misses = _next_try(misses, error)
                continue
            misses = 0
            yield job
            if is_final(job) or time.monotonic() >= ends:
                return
            if time.monotonic() - asked_at < wait / 2:
                time.sleep(EARLY_SECONDS)

    def wait(self, job_id: str, *, timeout: float | None = None) -> Job:
        """Return the job when it ends, or as it is when the time is over."""
        *_, job = self.follow(job_id, timeout=timeout)
        return job

    def events(self, job_id: str) -> Iterator[Event]:
        """Yield what happened and happens to a job, once and in order, to its end."""
        seen: str | None = None
        misses = 0
        while True:
            try:
                with self._stream(job_id, seen) as stream:
                    if stream is None:
                        return
                    misses, before = 0, seen
                    for told in stream:
                        if told.data:
                            seen = told.id
                            yield cast("Event", told.json())
                if seen == before:
                    time.sleep(EARLY_SECONDS)
            except ClientError as error:
                misses = _next_try(misses, error)

    def cancel(self, job_id: str) -> Job:
        """End a job now; asking twice is no error."""
        return cast("Job", self._ask("POST", f"{_job_path(job_id)}/cancel"))

    def retry(self, job_id: str) -> Job:
        """Queue a dead letter again."""
        return cast("Job", self._ask("POST", f"{_job_path(job_id)}/retry"))

    def retry_many(self, **which: Any) -> Retried:
        """Queue the dead letters that match again. Which: the fields of the API."""
        told = self._ask("POST", "/v1/dead-letters/retry", json=_given(which))
        return cast("Retried", told)

    def jobs(self, **which: Any) -> Iterator[Job]:
        """Yield jobs, newest first, page by page. Which: the filters of the API."""
        return cast("Iterator[Job]", self._pages("/v1/jobs", which))

    def dead_letters(self) -> Iterator[FailureGroup]:
        """Yield dead letters by what went wrong, the latest first."""
        return cast("Iterator[FailureGroup]", self._pages("/v1/dead-letters", {}))

    def _pages(self, path: str, which: Mapping[str, Any]) -> Iterator[Any]:
        query = _given(which)
        while True:
            page = self._ask("GET", path, params=query)
            yield from page["items"]
            if page["next_cursor"] is None:
                return
            query["cursor"] = page["next_cursor"]

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        try:
            response = self._http.request(method, path, **request)
        except httpx2.HTTPError as error:
            raise _unreachable(self.url, error) from error
        except UnicodeEncodeError as error:
            raise ClientError(
                "that cannot be sent: it has characters that do not belong there",
                code="BAD_REQUEST",
                status=HTTPStatus.BAD_REQUEST,
            ) from error
        if not response.is_success:
            raise _refusal(response)
        return _body(response)

    @contextmanager
    def _stream(
        self, job_id: str, seen: str | None
    ) -> Iterator[httpx2.EventSource | None]:
        """Connect to a job's events after the last one seen; `None` if that was all."""
        headers = {} if seen is None else {"Last-Event-ID": seen}
        timeout = httpx2.Timeout(self._timeout, read=SILENCE_SECONDS)
        path = f"{_job_path(job_id)}/events"
        try:
            with self._http.sse(path, headers=headers, timeout=timeout) as source:
                if source.response.status_code == HTTPStatus.NO_CONTENT:
                    yield None
                elif source.response.is_success:
                    yield source
                else:
                    source.response.read()
                    raise _refusal(source.response)
        except httpx2.HTTPError as error:
            raise _unreachable(self.url, error) from error


def is_final(job: Job) -> bool:
    """Say whether nothing happens to the job any more by itself."""
    return job["state"] in FINAL


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _job_path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='', errors='replace')}"


def _body(response: httpx2.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise ClientError(
            f"{response.url} did not answer in JSON: is it Backburner?",
            code="BAD_ANSWER",
        ) from error


def _refusal(response: httpx2.Response) -> ClientError:
    """Read a problem object, or make do with the status."""
    status = response.status_code
    try:
        told = response.json()
    except ValueError:
        told = None
    if not isinstance(told, dict):
        told = {}
    detail = str(told.get("detail") or f"the server answered {status}")
    fields = [f"{e['path']}: {e['message']}" for e in told.get("errors") or ()]
    message = "; ".join([detail, *(field for field in fields if field not in detail)])
    return ClientError(
        message,
        code=str(told.get("code", "HTTP_ERROR")),
        status=status,
        request_id=told.get("request_id") or response.headers.get("x-request-id"),
        retry_after=told.get("retry_after"),
    )


def _unreachable(url: str, error: Exception) -> ClientError:
    reason = str(error) or type(error).__name__
    return ClientError(f"{url} cannot be reached: {reason}", code="UNREACHABLE")


def _next_try(misses: int, error: ClientError) -> int:
    """Pause before asking again, unless that is pointless or was done often enough."""
    is_final_word = (
        error.status is not None and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    )
    if is_final_word or misses == len(PAUSES):
        raise error
    time.sleep(PAUSES[misses])
    return misses + 1
