"""Domain values as JSON. Inputs and outputs are passed through unparsed."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, cast, overload
from urllib.parse import urlencode

import orjson
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.costs.usage import dollars
from backburner.domain.errors import FieldError, InvalidInput
from backburner.domain.events.event import AttemptRecord, Event
from backburner.domain.groups.flow import FROM_NEEDS
from backburner.domain.jobs.job import Instant, Job, JobState, NewJob, rfc3339
from backburner.domain.jobs.step import FORK_TAG
from backburner.ports.store.activity import Impact
from backburner.ports.store.maintenance import FailureGroup
from backburner.shapes import jobs as shapes

MEDIA_TYPE = "application/json"
LONGEST_CURSOR: Final = 100
_JOB_ID: Final = re.compile(r"job_[0-9a-zA-Z-]{1,60}")


class Numbered(Protocol):
    """Something that lists are ordered by."""

    @property
    def seq(self) -> int:
        """Its position in lists."""
        ...


N = TypeVar("N", bound=Numbered)


def answer(
    body: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response."""
    return Response(orjson.dumps(body), status, headers, MEDIA_TYPE)


@overload
def time(instant: Instant) -> str: ...
@overload
def time(instant: None) -> None: ...
@overload
def time(instant: Instant | None) -> str | None: ...
def time(instant: Instant | None) -> str | None:
    """Format an instant by RFC 3339, in UTC, with milliseconds."""
    return None if instant is None else rfc3339(instant)


def location(job_id: str) -> str:
    """Return the path of a job."""
    return f"/v1/jobs/{job_id}"


def receipt(job: NewJob, state: JobState) -> shapes.Job:
    """Return a newly submitted job as JSON."""
    return {
        "id": job.id,
        "user": job.owner.user,
        "capability": job.capability,
        "queue": job.queue,
        "state": state,
        "priority": job.priority,
        "tags": list(job.tags),
        "metadata": dict(job.metadata or {}),
        "attempt": 0,
        "max_attempts": job.max_attempts,
        "generation": 0,
        "crashes": 0,
        "progress": None,
        "error": None,
        "created_at": time(job.created_at),
        "run_at": time(job.run_at),
        "start_by": time(job.start_by),
        "deadline": time(job.deadline),
        "started_at": None,
        "finished_at": None,
        "wait": None,
        "request_id": job.request_id,
        "flow_id": None,
        "step": None,
        "batch_id": None,
        "forked_from": forked_from(job.tags),
        "links": _links(job.id),
    }


def forked_from(tags: Sequence[str]) -> str | None:
    """Return the id of the job that a fork with these tags is based on."""
    ids = (tag.removeprefix(FORK_TAG) for tag in tags if tag.startswith(FORK_TAG))
    # Until the prefix was reserved, callers could give such a tag themselves.
    return next((one for one in ids if _JOB_ID.fullmatch(one)), None)


def summary(job: Job) -> shapes.Job:
    """Return a job as shown in lists."""
    error: Any = job.error
    return {
        "id": job.id,
        "user": job.owner.user,
        "capability": job.capability,
        "queue": job.queue,
        "state": job.state,
        "priority": job.priority,
        "tags": list(job.tags),
        "metadata": dict(job.metadata or {}),
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "generation": job.generation,
        "crashes": job.crashes,
        "progress": raw(job.progress),
        "error": error,
        "created_at": time(job.created_at),
        "run_at": time(job.run_at),
        "start_by": time(job.start_by),
        "deadline": time(job.deadline),
        "started_at": time(job.started_at),
        "finished_at": time(job.finished_at),
        "wait": _wait(job),
        "request_id": job.request_id,
        "flow_id": job.flow_id,
        "step": job.step,
        "batch_id": job.batch_id,
        "forked_from": forked_from(job.tags),
        "worker": job.worker if job.state is JobState.RUNNING else None,
        "links": _links(job.id),
    }


def _wait(job: Job) -> shapes.Wait | None:
    """Return what a suspended job waits for, without empty fields."""
    if job.wait is None:
        return None
    told: shapes.Wait = {"reason": job.wait.reason}
    if job.wait.name is not None:
        told["name"] = job.wait.name
    if job.wait.until is not None:
        told["until"] = time(job.wait.until)
    return told


def whole(
    job: Job, attempts: Iterable[AttemptRecord], *, with_traces: bool = False
) -> shapes.Job:
    """Return a job with all details; stack traces only with `with_traces`."""
    told = summary(job)
    if job.input == FROM_NEEDS:
        told |= {"input": None, "input_from": "needs"}
    else:
        told["input"] = raw(job.input)
    if job.state is JobState.SUCCEEDED:
        told["output"] = raw(job.output)
    told["attempts"] = [_attempt(one, with_traces=with_traces) for one in attempts]
    return told


def _attempt(attempt: AttemptRecord, *, with_traces: bool) -> shapes.Attempt:
    error: Any = attempt.error
    view: shapes.Attempt = {
        "generation": attempt.generation,
        "number": attempt.number,
        "worker": attempt.worker,
        "started_at": time(attempt.started_at),
        "finished_at": time(attempt.finished_at),
        "outcome": attempt.outcome,
        "error": error,
    }
    if with_traces:
        view["trace"] = attempt.trace
    return view


def event(told: Event) -> shapes.Event:
    """Return an event as JSON."""
    written = {
        "seq": told.seq,
        _subject(told): told.subject,
        "n": told.n,
        "type": told.type,
        "at": time(told.at),
        "data": told.data,
    }
    return cast("shapes.Event", written)


def _subject(told: Event) -> str:
    """Return the name of the field that identifies the subject of an event."""
    if told.topic is not None:
        return "topic"
    kind = told.type.partition(".")[0]
    return kind if kind in ("queue", "lane") else f"{kind}_id"


def failure_group(
    group: FailureGroup, impact: Impact | None = None
) -> shapes.FailureGroup:
    """Return a group of dead letters, and its impact if known."""
    return {
        "fingerprint": group.fingerprint,
        "capability": group.capability,
        "code": group.code,
        "message": group.message,
        "count": group.size,
        "first_at": time(group.first_at),
        "last_at": time(group.last_at),
        "sample_id": group.sample_id,
        "impact": None if impact is None else _impact(impact),
        "links": {"jobs": f"/v1/dead-letters?fingerprint={group.fingerprint}"},
    }


def _impact(impact: Impact) -> shapes.Impact:
    cost: Any = dollars(impact.cost)
    return {"jobs": impact.jobs, "users": impact.users, "cost_usd": cost}


def page(
    request: Request,
    found: Sequence[N],
    *,
    limit: int,
    write: Callable[[N], Mapping[str, Any]],
    onward: int | None = None,
) -> Response:
    """
    Return a page with the first `limit` items, and the cursor of the next one.

    `onward` is the number to continue from if there may be more items than given.
    """
    shown, headers, cursor = found[:limit], {}, None
    last = shown[-1].seq if len(found) > limit else onward
    if last is not None:
        cursor = base64.urlsafe_b64encode(str(last).encode()).decode()
        cursor = cursor.rstrip("=")
        kept = [(k, v) for k, v in request.query_params.multi_items() if k != "cursor"]
        query = urlencode([*kept, ("cursor", cursor)])
        headers["Link"] = f'<{request.url.path}?{query}>; rel="next"'
    body = {"items": [write(item) for item in shown], "next_cursor": cursor}
    return answer(body, headers=headers)


def read_cursor(cursor: str | None) -> int | None:
    """Return the number that a cursor stands for."""
    if cursor is None:
        return None
    if len(cursor) > LONGEST_CURSOR:
        cursor = ""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        before = int(text) if text.isascii() and text.isdecimal() else -1
    except (binascii.Error, ValueError):
        before = -1
    if not 0 <= before < 2**63:
        message = "must be a cursor from a page of this list"
        raise InvalidInput(
            "the cursor is not valid", [FieldError("query.cursor", message)]
        )
    return before


def _links(job_id: str) -> shapes.Links:
    here = location(job_id)
    return {
        "self": here,
        "result": f"{here}/result",
        "events": f"{here}/events",
        "cancel": f"{here}/cancel",
    }


def raw(text: str | None) -> Any:
    """Insert stored JSON unparsed."""
    return None if text is None else orjson.Fragment(text)
