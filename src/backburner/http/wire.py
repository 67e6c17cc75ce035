"""Domain values as JSON. Inputs and outputs are passed through unparsed."""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, overload

import orjson
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


class Numbered(Protocol):
    """Something that lists are ordered by."""

    @property
    def seq(self) -> int:
        """Its place."""
        ...


N = TypeVar("N", bound=Numbered)


def answer(
    body: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Send JSON."""
    return Response(orjson.dumps(body), status, headers, MEDIA_TYPE)


@overload
def time(instant: Instant) -> str: ...
@overload
def time(instant: None) -> None: ...
@overload
def time(instant: Instant | None) -> str | None: ...
def time(instant: Instant | None) -> str | None:
    """Write an instant by RFC 3339, in UTC, with milliseconds."""
    return None if instant is None else rfc3339(instant)


def location(job_id: str) -> str:
    """Return where a job is found."""
    return f"/v1/jobs/{job_id}"


def receipt(job: NewJob, state: JobState) -> shapes.Job:
    """Write a job as it was accepted."""
    return {
        "id": job.id,
        "user": job.owner.user,
        "capability": job.capability,
        "queue": job.queue,
        "state": state,
        "priority": job.priority,
        "tags": list(job.tags),
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
    """Return the job that one with these tags is a fork of."""
    found = (tag for tag in tags if tag.startswith(FORK_TAG))
    return next((tag.removeprefix(FORK_TAG) for tag in found), None)


def summary(job: Job) -> shapes.Job:
    """Write a job as lists show it."""
    error: Any = job.error
    return {
        "id": job.id,
        "user": job.owner.user,
        "capability": job.capability,
        "queue": job.queue,
        "state": job.state,
        "priority": job.priority,
        "tags": list(job.tags),
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
        "links": _links(job.id),
    }


def _wait(job: Job) -> Any:
    """Write what a suspended job waits for; fields without a value are left out."""
    if job.wait is None:
        return None
    reason, name, until = job.wait
    more = {"name": name, "until": time(until)}
    return {"reason": reason, **{k: v for k, v in more.items() if v is not None}}


def whole(
    job: Job, attempts: Iterable[AttemptRecord], *, with_traces: bool = False
) -> shapes.Job:
    """Write a job with all that is known of it; stacks only for those who may see."""
    told = summary(job)
    if job.input == FROM_NEEDS:
        told |= {"input": None, "input_from": "needs"}
    else:
        told["input"] = raw(job.input)
    if job.state is JobState.SUCCEEDED:
        told["output"] = raw(job.output)
    told["attempts"] = [_attempt(one, with_traces=with_traces) for one in attempts]
    return told


def _attempt(attempt: AttemptRecord, *, with_traces: bool) -> Any:
    view = {
        "generation": attempt.generation,
        "number": attempt.number,
        "worker": attempt.worker,
        "started_at": time(attempt.started_at),
        "finished_at": time(attempt.finished_at),
        "outcome": attempt.outcome,
        "error": attempt.error,
    }
    return {**view, "trace": attempt.trace} if with_traces else view


def event(told: Event) -> dict[str, Any]:
    """Write an event."""
    return {
        "seq": told.seq,
        _subject(told): told.subject,
        "n": told.n,
        "type": told.type,
        "at": time(told.at),
        "data": told.data,
    }


def _subject(told: Event) -> str:
    """Name the field that says what an event is about."""
    if told.topic is not None:
        return "topic"
    kind = told.type.partition(".")[0]
    return kind if kind in ("queue", "lane") else f"{kind}_id"


def failure_group(
    group: FailureGroup, impact: Impact | None = None
) -> shapes.FailureGroup:
    """Write a group of dead letters, and whom it hit if that is known."""
    return {
        "fingerprint": group.fingerprint,
        "capability": group.capability,
        "code": group.code,
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
    found: Sequence[N],
    *,
    limit: int,
    here: str,
    write: Callable[[N], Mapping[str, Any]],
    onward: int | None = None,
) -> Response:
    """
    Send the first `limit` of what was found, and the way to the rest.

    `onward` is the number to go on from if there may be more than was found.
    """
    shown, headers, cursor = found[:limit], {}, None
    last = shown[-1].seq if len(found) > limit else onward
    if last is not None:
        cursor = base64.urlsafe_b64encode(str(last).encode()).decode()
        cursor = cursor.rstrip("=")
        glue = "&" if "?" in here else "?"
        headers["Link"] = f'<{here}{glue}cursor={cursor}>; rel="next"'
    body = {"items": [write(item) for item in shown], "next_cursor": cursor}
    return answer(body, headers=headers)


def read_cursor(cursor: str | None) -> int | None:
    """Return what a cursor stands for."""
    if cursor is None:
        return None
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
    """Pass stored JSON through."""
    return None if text is None else orjson.Fragment(text)
