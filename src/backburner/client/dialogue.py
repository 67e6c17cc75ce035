"""
What to ask, when to ask again and what the answers mean: no input or output here.

A dialogue is a generator. It yields steps, which a driver takes, blocking or not, and
is sent what came of each. An answer that did not come is thrown in as `Unavailable`.
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
from backburner.shapes.jobs import Event, Job, Signal
from backburner.shapes.operations import (
    Budgets,
    Queue,
    Schedule,
    SecretEndpoint,
    Worker,
)
from backburner.shapes.usage import Quote, UsageReport

LONGEST_WAIT: Final = 60
MAX_GROUPS: Final = 200
"""What the server allows in `Prefer: wait`."""
PAUSES: Final = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
"""How long, about, to wait before each next try."""
EARLY_SECONDS: Final = 0.5
"""A server that stops, or is full, answers before the time: do not press it."""
SILENCE_SECONDS: Final = 45.0
"""An event stream says something every 15 s; after this long it is dead."""

T = TypeVar("T")

_JOB_ENDS: Final = frozenset(f"job.{state}" for state in FINAL)
_ALL: Final[EventsQuery] = {}


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request; the answer is an `Answer`."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: str | None = None
    wait: float = 0.0
    """How much longer than usual the answer may take."""
    is_repeatable: bool = True
    """Whether asking twice does no more than asking once."""


class Open(NamedTuple):
    """Open an event stream in place of the one before; the answer is an `Answer`."""

    path: str
    headers: Mapping[str, str]


class Read(NamedTuple):
    """Take the next message of the stream: a `StreamMessage`, or `None`."""


class Pause(NamedTuple):
    """Wait."""

    seconds: float


class Emit(NamedTuple):
    """Give the caller one of many things."""

    value: Any


class Answer(NamedTuple):
    """What the server said; the body of an open stream is still to come."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether it did what it was asked."""
        return HTTPStatus(200) <= self.status < HTTPStatus(300)


class StreamMessage(NamedTuple):
    """One message of a stream; `id` is where to go on after it."""

    id: str
    data: str


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The dialogue is over, and this came of it."""

    value: T


Step = SendRequest | Open | Read | Pause | Emit
Dialogue = Generator[Step, Any, T]


def advance(dialogue: Dialogue[T], answer: Any) -> Step | Done[T]:
    """Send what came of the last step, thrown if it is an error; return the next."""
    try:
        if isinstance(answer, ClientError):
            return dialogue.throw(answer)
        return dialogue.send(answer)
    except StopIteration as end:
        return Done(end.value)


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How much trouble a client takes."""

    retries: int = 2
    """How often a call is repeated that may be."""
    longest_pause: float = 30.0
    """A server that asks for more patience than this has its refusal raised."""

    def ask(self, request: SendRequest) -> Dialogue[Any]:
        """Ask, and ask again where that is safe and may help; return the body."""
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
        """Submit a job; with a key, a lost answer is asked for again."""
        body = {"capability": capability, "input": value, **given(options)}
        return cast("Job", (yield from self.send("/v1/jobs", body, key)))

    def quote(
        self, capability: str, value: Any, options: SubmitOptions
    ) -> Dialogue[Quote]:
        """Ask what a job would take; nothing is stored, so it may be repeated."""
        body = {"capability": capability, "input": value, **given(options)}
        request = SendRequest(
            "POST",
            "/v1/quote",
            headers={"Content-Type": "application/json"},
            content=json.dumps(body, allow_nan=False, default=_written),
        )
        return cast("Quote", (yield from self.ask(request)))

    def usage(self, which: UsageQuery) -> Dialogue[UsageReport]:
        """Return what jobs used, added up."""
        request = SendRequest("GET", "/v1/usage", params=given(which))
        return cast("UsageReport", (yield from self.ask(request)))

    def send(
        self, path: str, body: Mapping[str, Any], key: str | None
    ) -> Dialogue[Any]:
        """Send something new; with a key, a lost answer is asked for again."""
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        request = SendRequest(
            "POST",
            path,
            headers=headers,
            # Escaped to ASCII: half a character is for the server to refuse.
            content=json.dumps(body, allow_nan=False, default=_written),
            is_repeatable=key is not None,
        )
        return (yield from self.ask(request))

    def call(
        self, method: str, path: str, body: Any = None, *, params: Mapping[str, Any]
    ) -> Dialogue[Any]:
        """Call a route of an application; only what changes nothing is repeated."""
        is_read = method in {"GET", "HEAD"}
        request = SendRequest(
            method,
            path,
            params=given(params),
            headers={} if is_read else {"Content-Type": "application/json"},
            content=None if is_read else json.dumps(body or {}, allow_nan=False),
            is_repeatable=is_read,
        )
        return (yield from self.ask(request))

    def get(self, job_id: str, wait: float = 0) -> Dialogue[Job]:
        """Return the job, at most `wait` seconds later."""
        return cast("Job", (yield from self.look(job_path(job_id), wait)))

    def look(self, path: str, wait: float = 0) -> Dialogue[Any]:
        """Return what is somewhere, at most `wait` seconds later."""
        seconds = min(LONGEST_WAIT, math.ceil(wait))
        headers = {"Prefer": f"wait={seconds}"} if seconds > 0 else {}
        return (
            yield from self.ask(SendRequest("GET", path, headers=headers, wait=seconds))
        )

    def follow(
        self, job_id: str, timeout: float | None, every: float = LONGEST_WAIT
    ) -> Dialogue[Job]:
        """Tell the job every so often, the last time when it ends or time is over."""
        followed = yield from self.follow_at(job_path(job_id), timeout, every)
        return cast("Job", followed)

    def follow_at(
        self, path: str, timeout: float | None, every: float = LONGEST_WAIT
    ) -> Dialogue[Any]:
        """Tell what is somewhere every so often, to its end or when time is over."""
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
        """Tell what happened and happens to a job, once and in order, to its end."""
        return self.stream(f"{job_path(job_id)}/events", _JOB_ENDS)

    def pieces(self, job_id: str) -> Dialogue[str]:
        """Tell the text that a job streams as it grows; return it when it is whole."""
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
        """Tell what happens to everything, or to one thing, in order, for ever."""
        query = urlencode(given(which))
        path = f"/v1/events?{query}" if query else "/v1/events"
        return self._stream(path, _Place(after))

    def stream(self, path: str, ends: Collection[str]) -> Dialogue[None]:
        """Tell the events of a stream, once and in order, to one of its ends."""
        return self._stream(path, _Place(ends=ends))

    def pages(self, path: str, which: Mapping[str, Any]) -> Dialogue[None]:
        """Tell the items of a list, page by page."""
        query = given(which)
        while True:
            page = yield from self.ask(SendRequest("GET", path, params=query))
            for item in page["items"]:
                yield Emit(item)
            if page["next_cursor"] is None:
                return
            query["cursor"] = page["next_cursor"]

    def jobs(self, which: JobsQuery) -> Dialogue[None]:
        """Tell jobs, newest first."""
        return self.pages("/v1/jobs", which)

    def failures(self) -> Dialogue[None]:
        """Tell the groups of dead letters, the latest first."""
        return self.pages("/v1/dead-letters", {"limit": MAX_GROUPS})

    def dead_letters(self, fingerprint: str | None) -> Dialogue[None]:
        """Tell the dead letters, or those of one group, newest first."""
        if fingerprint is None:
            return self.jobs({"state": JobState.FAILED})
        return self.pages("/v1/dead-letters", {"fingerprint": fingerprint})

    def cancel(self, job_id: str) -> Dialogue[Job]:
        """End a job now; asking twice is no error, so it may be repeated."""
        request = SendRequest("POST", f"{job_path(job_id)}/cancel")
        return cast("Job", (yield from self.ask(request)))

    def change(self, job_id: str, change: JobChange) -> Dialogue[Job]:
        """Change a job that has not started; asking twice is no error."""
        run_at = change.get("run_at")
        said: dict[str, Any] = {**change}
        if isinstance(run_at, datetime):
            said["run_at"] = run_at.isoformat()
        request = SendRequest(
            "PATCH",
            job_path(job_id),
            headers={"Content-Type": "application/json"},
            content=json.dumps(said),
        )
        return cast("Job", (yield from self.ask(request)))

    def retry(self, job_id: str, *, fresh: bool = False) -> Dialogue[Job]:
        """Queue a dead letter again; not repeated, for the job may fail between."""
        path = f"{job_path(job_id)}/retry" + ("?fresh=true" if fresh else "")
        told = yield from self.ask(SendRequest("POST", path, is_repeatable=False))
        return cast("Job", told)

    def fork(
        self, job_id: str, start: str | int, value: Any, *, dry_run: bool
    ) -> Dialogue[Any]:
        """Submit a fork; not repeated, for each one is a job of its own."""
        asked = {"from": start} | ({} if value is SAME_INPUT else {"input": value})
        told = yield from self.ask(
            SendRequest(
                "POST",
                f"{job_path(job_id)}/fork" + ("?dry_run=true" if dry_run else ""),
                headers={"Content-Type": "application/json"},
                content=json.dumps(asked, allow_nan=False, default=_written),
                is_repeatable=dry_run,
            )
        )
        return told

    def signal(self, job_id: str, name: str, value: Any) -> Dialogue[Signal]:
        """Send a signal; the same one again is no error."""
        request = SendRequest(
            "POST",
            f"{job_path(job_id)}/signals/{quote(name, safe='')}",
            headers={"Content-Type": "application/json"},
            content=json.dumps(value),
        )
        return cast("Signal", (yield from self.ask(request)))

    def answer(self, job_id: str, name: str, value: Any) -> Dialogue[Signal]:
        """Answer a question; the same answer again is no error."""
        request = SendRequest(
            "POST",
            f"{job_path(job_id)}/questions/{quote(name, safe='')}/answer",
            headers={"Content-Type": "application/json"},
            content=json.dumps(value),
        )
        return cast("Signal", (yield from self.ask(request)))

    def retry_many(self, which: RetryQuery) -> Dialogue[Any]:
        """Queue the dead letters that match again."""
        request = SendRequest(
            "POST",
            "/v1/dead-letters/retry",
            headers={"Content-Type": "application/json"},
            content=json.dumps(given(which)),
            is_repeatable=bool(which.get("dry_run")),
        )
        return (yield from self.ask(request))

    def items(self, path: str) -> Dialogue[Any]:
        """Return a list that has no pages."""
        return (yield from self.ask(SendRequest("GET", path)))["items"]

    def pause_queue(self, name: str, *, paused: bool) -> Dialogue[Queue]:
        """Pause a queue or let it go on; asking twice is no error."""
        verb = "pause" if paused else "resume"
        path = f"/v1/queues/{quote(name, safe='')}/{verb}"
        return cast("Queue", (yield from self.ask(SendRequest("POST", path))))

    def drain_worker(self, worker_id: str, *, draining: bool) -> Dialogue[Worker]:
        """Drain a worker or let it go on; asking twice is no error."""
        verb = "drain" if draining else "resume"
        path = f"/v1/workers/{quote(worker_id, safe='')}/{verb}"
        return cast("Worker", (yield from self.ask(SendRequest("POST", path))))

    def set_schedule(
        self, name: str, capability: str, cron: str, said: ScheduleOptions
    ) -> Dialogue[Schedule]:
        """Save a schedule; asking twice is no error."""
        request = SendRequest(
            "PUT",
            _schedule_path(name),
            headers={"Content-Type": "application/json"},
            content=json.dumps({"capability": capability, "cron": cron, **said}),
        )
        return cast("Schedule", (yield from self.ask(request)))

    def delete_schedule(self, name: str) -> Dialogue[None]:
        """Delete a schedule; not repeated, for the answer would be another."""
        path = _schedule_path(name)
        yield from self.ask(SendRequest("DELETE", path, is_repeatable=False))

    def pause_schedule(self, name: str, *, paused: bool) -> Dialogue[Schedule]:
        """Pause a schedule or let it go on; asking twice is no error."""
        path = f"{_schedule_path(name)}/{'pause' if paused else 'resume'}"
        return cast("Schedule", (yield from self.ask(SendRequest("POST", path))))

    def run_schedule(self, name: str) -> Dialogue[Job]:
        """Submit a schedule's job now; not repeated, for that would be another."""
        path = f"{_schedule_path(name)}/run"
        told = yield from self.ask(SendRequest("POST", path, is_repeatable=False))
        return cast("Job", told)

    def budgets(self) -> Dialogue[Budgets]:
        """Return the budgets and how far they are used."""
        return cast("Budgets", (yield from self.ask(SendRequest("GET", "/v1/budgets"))))

    def set_budget(self, scope: str, said: BudgetOptions) -> Dialogue[Budgets]:
        """Set a budget; asking twice is no error."""
        request = SendRequest(
            "PUT",
            "/v1/budgets",
            headers={"Content-Type": "application/json"},
            content=json.dumps({"scope": scope, **given(said)}),
        )
        return cast("Budgets", (yield from self.ask(request)))

    def drop_budget(
        self, scope: str, *, unit: str, per_seconds: int, of: str | None
    ) -> Dialogue[Budgets]:
        """Take a budget away; not repeated, for then there is none."""
        named = {"scope": scope, "unit": unit, "per_seconds": per_seconds, "of": of}
        request = SendRequest(
            "DELETE", "/v1/budgets", given(named), is_repeatable=False
        )
        return cast("Budgets", (yield from self.ask(request)))

    def create_endpoint(self, url: str) -> Dialogue[SecretEndpoint]:
        """Make an endpoint; asking twice gives the same."""
        request = SendRequest(
            "POST",
            "/v1/endpoints",
            headers={"Content-Type": "application/json"},
            content=json.dumps({"url": url}),
        )
        return cast("SecretEndpoint", (yield from self.ask(request)))

    def change_endpoint(self, endpoint_id: str, verb: str) -> Dialogue[Any]:
        """Rotate, enable or disable an endpoint; to rotate twice is not the same."""
        path = f"/v1/endpoints/{quote(endpoint_id, safe='')}/{verb}"
        request = SendRequest("POST", path, is_repeatable=verb != "rotate")
        return (yield from self.ask(request))

    def deliveries(self, subject: str) -> Dialogue[None]:
        """Tell who was told of a job's, flow's or batch's end, newest first."""
        kinds = {"flow": "flows", "batch": "batches"}
        kind = kinds.get(subject.partition("_")[0], "jobs")
        return self.pages(f"/v1/{kind}/{quote(subject, safe='')}/deliveries", {})

    def replay(self, delivery_id: str) -> Dialogue[Job]:
        """Send a webhook again; not repeated, for each is one more."""
        path = f"/v1/deliveries/{quote(delivery_id, safe='')}/replay"
        told = yield from self.ask(SendRequest("POST", path, is_repeatable=False))
        return cast("Job", told)

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
                    return  # it ended, and was deleted before we came back
                yield self._pause(error, misses)
                misses += 1

    def _pause(self, error: ClientError, misses: int) -> Pause:
        """Return how long to wait before the next try; raise if there is none."""
        is_worth_it = isinstance(error, (RateLimited, Unavailable))
        asked_for = error.retry_after or 0.0
        if not is_worth_it or misses >= len(PAUSES) or asked_for > self.longest_pause:
            raise error
        jitter = random.uniform(0.5, 1.0)
        return Pause(max(asked_for, PAUSES[misses] * jitter))


class _Place:
    """How far the reader of a stream is."""

    def __init__(self, after: int | None = None, ends: Collection[str] = ()) -> None:
        self.seen = None if after is None else str(after)
        self.ends = ends
        self.is_end = False

    def opening(self, path: str) -> Open:
        """Go on after the last event that was seen."""
        return Open(path, {} if self.seen is None else {"Last-Event-ID": self.seen})


def _read(place: _Place) -> Dialogue[bool]:
    """Tell what an open stream says; return whether that was anything."""
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
    """Make an idempotency key that nobody else has."""
    return secrets.token_urlsafe(18)


def job_path(job_id: str) -> str:
    """Return where a job is."""
    return f"/v1/jobs/{quote(job_id, safe='', errors='replace')}"


def _schedule_path(name: str) -> str:
    return f"/v1/schedules/{quote(name, safe='')}"


def unreachable(url: str, error: Exception) -> Unavailable:
    """Say that there was no answer."""
    reason = str(error) or type(error).__name__
    return Unavailable(f"{url} cannot be reached: {reason}", code="UNREACHABLE")


def not_sendable() -> ClientError:
    """Say that a request cannot be written down."""
    return ClientError(
        "that cannot be sent: it has characters that do not belong there",
        code="BAD_REQUEST",
        status=HTTPStatus.BAD_REQUEST,
    )


def _written(value: Any) -> str:
    """Write what JSON has no form for."""
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was chosen, as it is sent."""
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
    """Read a problem object, or make do with the status."""
    try:
        told = json.loads(answer.body)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        told = {}
    detail = str(told.get("detail") or f"the server answered {answer.status}")
    fields = [f"{e['path']}: {e['message']}" for e in told.get("errors") or ()]
    message = "; ".join([detail, *(field for field in fields if field not in detail)])
    code = str(told.get("code", "HTTP_ERROR"))
    return _kind(answer.status, code)(
        message,
        code=code,
        status=answer.status,
        request_id=told.get("request_id") or answer.headers.get("x-request-id"),
        retry_after=told.get("retry_after") or _seconds(answer.headers),
    )


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Read `Retry-After`; a date in it is not worth a calendar."""
    said = headers.get("retry-after", "")
    return float(said) if said.isascii() and said.isdecimal() else None


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
