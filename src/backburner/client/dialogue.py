"""
The client's requests, retries and interpretation of responses, without I/O.

A dialogue is a generator. It yields steps; the client executes each one, blocking or
not, and sends back its result. If there is no response, `Unavailable` is thrown in.
"""

import json
import math
import random
import secrets
import time
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast
from urllib.parse import quote, urlencode

from backburner.client.errors import (
    ClientError,
    Conflict,
    Denied,
    JobFailed,
    NotFound,
    NotYet,
    RateLimited,
    Unavailable,
)
from backburner.client.options import (
    SAME_INPUT,
    BudgetOptions,
    EventsQuery,
    JobChange,
    JobsQuery,
    RetryQuery,
    ScheduleOptions,
    SubmitOptions,
    UsageQuery,
    is_final,
)
from backburner.domain.events.text import Text
from backburner.domain.jobs.job import FINAL, JobState
from backburner.shapes.jobs import Event, Job, Retried, Signal
from backburner.shapes.operations import (
    BudgetHistory,
    Budgets,
    Queue,
    Schedule,
    SecretEndpoint,
    Worker,
)
from backburner.shapes.usage import Quote, UsageReport

LONGEST_WAIT: Final = 60
MAX_GROUPS: Final = 200
"""The maximum number of groups of dead letters in one page."""
PAUSES: Final = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The approximate pauses before successive retries, in seconds."""
EARLY_SECONDS: Final = 0.5
"""A pause if a server that stops or is full responds before the time."""
SILENCE_SECONDS: Final = 45.0
"""An event stream sends something every 15 s; after this time it is dead."""

T = TypeVar("T")

_JOB_ENDS: Final = frozenset(f"job.{state}" for state in FINAL)
_ALL: Final[EventsQuery] = {}


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request; the result is an `Answer`."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: str | None = None
    wait: float = 0.0
    """How much longer than usual the response may take."""
    is_repeatable: bool = True
    """Whether repeating the request is safe."""


def _json_request(method: str, path: str, body: Any, **more: Any) -> SendRequest:
    headers = {"Content-Type": "application/json"}
    content = json.dumps(body)
    return SendRequest(method, path, headers=headers, content=content, **more)


class Open(NamedTuple):
    """Open an event stream in place of the previous one; the result is an `Answer`."""

    path: str
    headers: Mapping[str, str]


class Read(NamedTuple):
    """Read the next message of the stream: a `StreamMessage`, or `None`."""


class Pause(NamedTuple):
    """Wait for some time."""

    seconds: float


class Emit(NamedTuple):
    """Yield one of several values to the caller."""

    value: Any


class Answer(NamedTuple):
    """A response; that of an open stream has no body yet."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the status is a success."""
        return HTTPStatus(200) <= self.status < HTTPStatus(300)


class StreamMessage(NamedTuple):
    """One message of a stream; `id` is the position to resume after it."""

    id: str
    data: str


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The end of a dialogue, with its result."""

    value: T


Step = SendRequest | Open | Read | Pause | Emit
Dialogue = Generator[Step, Any, T]


def advance(dialogue: Dialogue[T], answer: Any) -> Step | Done[T]:
    """Send the result of the last step, thrown if it is an error; return the next."""
    try:
        if isinstance(answer, ClientError):
            return dialogue.throw(answer)
        return dialogue.send(answer)
    except StopIteration as end:
        return Done(end.value)


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How often and how long a client retries."""

    retries: int = 2
    """How often a safe call is repeated."""
    longest_pause: float = 30.0
    """If the server demands a longer wait than this, its error is raised."""

    def ask(self, request: SendRequest) -> Dialogue[Any]:
        """Send a request, retry it if that is safe, and return the response's body."""
        misses = 0
        while True:
            try:
                answer: Answer = yield request
                return _body(request.path, _accepted(answer))
            except ClientError as error:
                if not request.is_repeatable or misses == self.retries:
                    raise
                yield self._pause(error, misses)
                misses += 1

    def submit(
        self, capability: str, value: Any, key: str | None, options: SubmitOptions
    ) -> Dialogue[Job]:
        """Submit a job; with a key, it is safe to repeat."""
        body = {"capability": capability, "input": value, **given(options)}
        return self.send("/v1/jobs", body, key)

    def quote(
        self, capability: str, value: Any, options: SubmitOptions
    ) -> Dialogue[Quote]:
        """Request a quote; nothing is stored, so it is safe to repeat."""
        body = {"capability": capability, "input": value, **given(options)}
        request = SendRequest(
            "POST",
            "/v1/quote",
            headers={"Content-Type": "application/json"},
            content=json.dumps(body, allow_nan=False, default=_written),
        )
        return self.ask(request)

    def usage(self, which: UsageQuery) -> Dialogue[UsageReport]:
        """Return the total usage of jobs."""
        request = SendRequest("GET", "/v1/usage", params=given(which))
        return self.ask(request)

    def send(
        self, path: str, body: Mapping[str, Any], key: str | None
    ) -> Dialogue[Any]:
        """Post something new; with a key, it is safe to repeat."""
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        request = SendRequest(
            "POST",
            path,
            headers=headers,
            # Escaped to ASCII: lone surrogates reach the server, which refuses them.
            content=json.dumps(body, allow_nan=False, default=_written),
            is_repeatable=key is not None,
        )
        return self.ask(request)

    def call(
        self, method: str, path: str, body: Any = None, *, params: Mapping[str, Any]
    ) -> Dialogue[Any]:
        """Call a route of an application; only GET and HEAD are repeated."""
        is_read = method in {"GET", "HEAD"}
        request = SendRequest(
            method,
            path,
            params=given(params),
            headers={} if is_read else {"Content-Type": "application/json"},
            content=None if is_read else json.dumps(body or {}, allow_nan=False),
            is_repeatable=is_read,
        )
        return self.ask(request)

    def get(self, job_id: str, wait: float = 0) -> Dialogue[Job]:
        """Return the job, once it has ended or after at most `wait` seconds."""
        return self.look(job_path(job_id), wait)

    def look(self, path: str, wait: float = 0) -> Dialogue[Any]:
        """Return a resource, once it has ended or after at most `wait` seconds."""
        seconds = min(LONGEST_WAIT, math.ceil(wait))
        headers = {"Prefer": f"wait={seconds}"} if seconds > 0 else {}
        return self.ask(SendRequest("GET", path, headers=headers, wait=seconds))

    def follow(
        self, job_id: str, timeout: float | None, every: float = LONGEST_WAIT
    ) -> Dialogue[Job]:
        """Emit the job at intervals, and at last at its end or at the timeout."""
        return self.follow_at(job_path(job_id), timeout, every)

    def follow_at(
        self, path: str, timeout: float | None, every: float = LONGEST_WAIT
    ) -> Dialogue[Any]:
        """Emit a resource at intervals, and at last at its end or at the timeout."""
        ends = math.inf if timeout is None else time.monotonic() + timeout
        misses = 0
        while True:
            asked_at = time.monotonic()
            wait = max(0.0, min(every, ends - asked_at))
            try:
                seen = yield from RequestPolicy(retries=0).look(path, wait)
            except ClientError as error:
                if time.monotonic() >= ends:
                    raise
                yield self._pause(error, misses)
                misses += 1
                continue
            misses = 0
            yield Emit(seen)
            if is_final(seen) or time.monotonic() >= ends:
                return seen
            if time.monotonic() - asked_at < wait / 2:
                yield Pause(EARLY_SECONDS)

    def events(self, job_id: str) -> Dialogue[None]:
        """Emit all events of a job, once and in order, until it ends."""
        return self.stream(f"{job_path(job_id)}/events", _JOB_ENDS)

    def pieces(self, job_id: str) -> Dialogue[str]:
        """Emit the text that a job streams as it grows; return the complete text."""
        text, events = Text(), self.events(job_id)
        step = advance(events, None)
        while not isinstance(step, Done):
            answer = None
            if isinstance(step, Emit):
                event: Event = step.value
                piece = text.take(event["n"], event["type"], event["data"])
                if piece is not None:
                    yield Emit(piece)
            else:
                try:
                    answer = yield step
                except ClientError as error:
                    answer = error
            step = advance(events, answer)
        return str(text)

    def all_events(
        self, after: int | None, which: EventsQuery = _ALL
    ) -> Dialogue[None]:
        """Emit all events, or those of one subject, in order and without end."""
        query = urlencode(given(which))
        path = f"/v1/events?{query}" if query else "/v1/events"
        return self._stream(path, _Place(after))

    def stream(self, path: str, ends: Collection[str]) -> Dialogue[None]:
        """Emit the events of a stream, once and in order, up to an end event."""
        return self._stream(path, _Place(ends=ends))

    def pages(self, path: str, which: Mapping[str, Any]) -> Dialogue[None]:
        """Emit the items of a list, page by page."""
        query = given(which)
        while True:
            page = yield from self.ask(SendRequest("GET", path, params=query))
            for item in page["items"]:
                yield Emit(item)
            if page["next_cursor"] is None:
                return
            query["cursor"] = page["next_cursor"]

    def jobs(self, which: JobsQuery) -> Dialogue[None]:
        """Emit jobs, newest first."""
        metadata = which.get("metadata") or {}
        pairs = [f"{name}={text}" for name, text in metadata.items()]
        return self.pages("/v1/jobs", {**which, "metadata": pairs or None})

    def failures(self) -> Dialogue[None]:
        """Emit the groups of dead letters, the latest first."""
        return self.pages("/v1/dead-letters", {"limit": MAX_GROUPS})

    def dead_letters(self, fingerprint: str | None) -> Dialogue[None]:
        """Emit the dead letters, or those of one group, newest first."""
        if fingerprint is None:
            return self.jobs({"state": JobState.FAILED})
        return self.pages("/v1/dead-letters", {"fingerprint": fingerprint})

    def cancel(self, job_id: str) -> Dialogue[Job]:
        """Cancel a job; it is safe to repeat."""
        request = SendRequest("POST", f"{job_path(job_id)}/cancel")
        return self.ask(request)

    def change(self, job_id: str, change: JobChange) -> Dialogue[Job]:
        """Change a job that has not started; it is safe to repeat."""
        run_at = change.get("run_at")
        body: dict[str, Any] = {**change}
        if isinstance(run_at, datetime):
            body["run_at"] = run_at.isoformat()
        request = _json_request("PATCH", job_path(job_id), body)
        return self.ask(request)

    def retry(self, job_id: str, *, fresh: bool = False) -> Dialogue[Job]:
        """Queue a dead letter again; not repeated, as the job may fail in between."""
        path = f"{job_path(job_id)}/retry"
        params = {"fresh": "true"} if fresh else {}
        return self.ask(SendRequest("POST", path, params, is_repeatable=False))

    def fork(
        self, job_id: str, start: str | int, value: Any, *, dry_run: bool
    ) -> Dialogue[Any]:
        """Submit a fork; not repeated, as that would create another job."""
        body = {"from": start} | ({} if value is SAME_INPUT else {"input": value})
        return self.ask(
            SendRequest(
                "POST",
                f"{job_path(job_id)}/fork",
                {"dry_run": "true"} if dry_run else {},
                headers={"Content-Type": "application/json"},
                content=json.dumps(body, allow_nan=False, default=_written),
                is_repeatable=dry_run,
            )
        )

    def signal(self, job_id: str, name: str, value: Any) -> Dialogue[Signal]:
        """Send a signal; repeating it is no error."""
        request = _json_request(
            "POST", f"{job_path(job_id)}/signals/{quote(name, safe='')}", value
        )
        return self.ask(request)

    def answer(self, job_id: str, name: str, value: Any) -> Dialogue[Signal]:
        """Answer a question; repeating it is no error."""
        request = _json_request(
            "POST", f"{job_path(job_id)}/questions/{quote(name, safe='')}/answer", value
        )
        return self.ask(request)

    def retry_many(self, which: RetryQuery) -> Dialogue[Retried]:
        """Queue all dead letters that match again."""
        request = _json_request(
            "POST",
            "/v1/dead-letters/retry",
            given(which),
            is_repeatable=bool(which.get("dry_run")),
        )
        return self.ask(request)

    def items(self, path: str) -> Dialogue[Any]:
        """Return a list that is not paginated."""
        return (yield from self.ask(SendRequest("GET", path)))["items"]

    def pause_queue(self, name: str, *, paused: bool) -> Dialogue[Queue]:
        """Pause or resume a queue; it is safe to repeat."""
        verb = "pause" if paused else "resume"
        path = f"/v1/queues/{quote(name, safe='')}/{verb}"
        return self.ask(SendRequest("POST", path))

    def drain_worker(self, worker_id: str, *, draining: bool) -> Dialogue[Worker]:
        """Drain or resume a worker; it is safe to repeat."""
        verb = "drain" if draining else "resume"
        path = f"/v1/workers/{quote(worker_id, safe='')}/{verb}"
        return self.ask(SendRequest("POST", path))

    def set_schedule(
        self, name: str, capability: str, cron: str, said: ScheduleOptions
    ) -> Dialogue[Schedule]:
        """Save a schedule; it is safe to repeat."""
        request = _json_request(
            "PUT",
            _schedule_path(name),
            {"capability": capability, "cron": cron, **said},
        )
        return self.ask(request)

    def delete_schedule(self, name: str) -> Dialogue[None]:
        """Delete a schedule; not repeated, as the second response would be an error."""
        path = _schedule_path(name)
        yield from self.ask(SendRequest("DELETE", path, is_repeatable=False))

    def pause_schedule(self, name: str, *, paused: bool) -> Dialogue[Schedule]:
        """Pause or resume a schedule; it is safe to repeat."""
        path = f"{_schedule_path(name)}/{'pause' if paused else 'resume'}"
        return self.ask(SendRequest("POST", path))

    def run_schedule(self, name: str) -> Dialogue[Job]:
        """Submit a schedule's job now; not repeated, as that would submit another."""
        path = f"{_schedule_path(name)}/run"
        return self.ask(SendRequest("POST", path, is_repeatable=False))

    def budgets(self) -> Dialogue[Budgets]:
        """Return the budgets and their state."""
        return self.ask(SendRequest("GET", "/v1/budgets"))

    def budget_history(
        self, scope: str, of: str, *, unit: str, per_seconds: int
    ) -> Dialogue[BudgetHistory]:
        """Return how a budget was used in its current window."""
        named = {"scope": scope, "of": of, "unit": unit, "per_seconds": per_seconds}
        return self.ask(SendRequest("GET", "/v1/budgets/history", named))

    def set_budget(self, scope: str, said: BudgetOptions) -> Dialogue[Budgets]:
        """Set a budget; it is safe to repeat."""
        request = _json_request("PUT", "/v1/budgets", {"scope": scope, **given(said)})
        return self.ask(request)

    def drop_budget(
        self, scope: str, *, unit: str, per_seconds: int, of: str | None
    ) -> Dialogue[Budgets]:
        """Delete a budget; not repeated, as the second response would be an error."""
        named = {"scope": scope, "unit": unit, "per_seconds": per_seconds, "of": of}
        request = SendRequest(
            "DELETE", "/v1/budgets", given(named), is_repeatable=False
        )
        return self.ask(request)

    def create_endpoint(self, url: str) -> Dialogue[SecretEndpoint]:
        """Create an endpoint; repeating it returns the same one."""
        request = _json_request("POST", "/v1/endpoints", {"url": url})
        return self.ask(request)

    def change_endpoint(self, endpoint_id: str, verb: str) -> Dialogue[Any]:
        """Rotate, enable or disable an endpoint; `rotate` is not safe to repeat."""
        path = f"/v1/endpoints/{quote(endpoint_id, safe='')}/{verb}"
        request = SendRequest("POST", path, is_repeatable=verb != "rotate")
        return self.ask(request)

    def deliveries(self, subject: str) -> Dialogue[None]:
        """Emit the deliveries of a job's, flow's or batch's end, newest first."""
        kinds = {"flow": "flows", "batch": "batches"}
        kind = kinds.get(subject.partition("_")[0], "jobs")
        return self.pages(f"/v1/{kind}/{quote(subject, safe='')}/deliveries", {})

    def replay(self, delivery_id: str) -> Dialogue[Job]:
        """Send a webhook again; not repeated, as each call sends another."""
        path = f"/v1/deliveries/{quote(delivery_id, safe='')}/replay"
        return self.ask(SendRequest("POST", path, is_repeatable=False))

    def _stream(self, path: str, place: "_Place") -> Dialogue[None]:
        misses = 0
        while True:
            try:
                opened: Answer = yield place.opening(path)
                if _accepted(opened).status == HTTPStatus.NO_CONTENT:
                    return
                misses = 0
                if not (yield from _read(place)):
                    yield Pause(EARLY_SECONDS)
            except ClientError as error:
                if isinstance(error, NotFound) and place.is_end:
                    return  # it ended and was deleted before the stream was resumed
                yield self._pause(error, misses)
                misses += 1

    def _pause(self, error: ClientError, misses: int) -> Pause:
        """Return the pause before the next retry; raise if there is none."""
        is_worth_it = isinstance(error, (RateLimited, Unavailable))
        asked_for = error.retry_after or 0.0
        if not is_worth_it or misses >= len(PAUSES) or asked_for > self.longest_pause:
            raise error
        jitter = random.uniform(0.5, 1.0)
        return Pause(max(asked_for, PAUSES[misses] * jitter))


class _Place:
    """The position of the reader of a stream."""

    def __init__(self, after: int | None = None, ends: Collection[str] = ()) -> None:
        self.seen = None if after is None else str(after)
        self.ends = ends
        self.is_end = False

    def opening(self, path: str) -> Open:
        """Return the step that resumes the stream after the last event."""
        return Open(path, {} if self.seen is None else {"Last-Event-ID": self.seen})


def _read(place: _Place) -> Dialogue[bool]:
    """Emit the events of an open stream; return whether there were any."""
    before = place.seen
    while (message := (yield Read())) is not None:
        place.seen = message.id or place.seen
        if message.data:
            event = cast("Event", json.loads(message.data))
            place.is_end = event["type"] in place.ends
            yield Emit(event)
    return place.seen != before


def result_of(job: Job) -> Any:
    """Return the output of a job; raise if it has none."""
    if job["state"] == JobState.SUCCEEDED:
        return job.get("output")
    raise JobFailed(job) if is_final(job) else NotYet(job)


def new_key() -> str:
    """Generate a unique idempotency key."""
    return secrets.token_urlsafe(18)


def job_path(job_id: str) -> str:
    """Return the path of a job."""
    return f"/v1/jobs/{quote(job_id, safe='', errors='replace')}"


def _schedule_path(name: str) -> str:
    return f"/v1/schedules/{quote(name, safe='')}"


def unreachable(url: str, error: Exception) -> Unavailable:
    """Return the error for a request without a response."""
    reason = str(error) or type(error).__name__
    return Unavailable(f"{url} cannot be reached: {reason}", code="UNREACHABLE")


def not_sendable() -> ClientError:
    """Return the error for a request that cannot be encoded."""
    return ClientError(
        "the request has characters that cannot be sent, such as lone surrogates",
        code="BAD_REQUEST",
        status=HTTPStatus.BAD_REQUEST,
    )


def _written(value: Any) -> str:
    """Encode a value that JSON has no type for."""
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are set, in the form in which they are sent."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in options.items()
        if value is not None
    }


def _accepted(answer: Answer) -> Answer:
    if not answer.is_success:
        raise _refusal(answer)
    return answer


def _body(path: str, answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError as error:
        raise ClientError(
            f"{path} did not answer in JSON: is it Backburner?", code="BAD_ANSWER"
        ) from error


def _refusal(answer: Answer) -> ClientError:
    """Parse a problem object, or fall back to the status."""
    try:
        problem = json.loads(answer.body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {}
    detail = str(problem.get("detail") or f"the server answered {answer.status}")
    fields = [f"{e['path']}: {e['message']}" for e in problem.get("errors") or ()]
    message = "; ".join([detail, *(field for field in fields if field not in detail)])
    code = str(problem.get("code", "HTTP_ERROR"))
    return _kind(answer.status, code)(
        message,
        code=code,
        status=answer.status,
        request_id=problem.get("request_id") or answer.headers.get("x-request-id"),
        retry_after=problem.get("retry_after") or _seconds(answer.headers),
    )


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Parse `Retry-After` in seconds; dates are ignored."""
    value = headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdecimal() else None


_KINDS: Final[Mapping[int, type[ClientError]]] = {
    HTTPStatus.UNAUTHORIZED: Denied,
    HTTPStatus.FORBIDDEN: Denied,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.TOO_MANY_REQUESTS: RateLimited,
}


def _kind(status: int, code: str) -> type[ClientError]:
    if code == "IDEMPOTENCY_CONFLICT":
        return Conflict
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Unavailable
    return _KINDS.get(status, ClientError)
