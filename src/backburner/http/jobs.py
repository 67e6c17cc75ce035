"""Jobs over HTTP: submit, find, wait, cancel, retry."""

import re
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import (
    BlobMissing,
    IdempotencyConflict,
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    StoreFull,
    StoreUnavailable,
    UnknownCapability,
)
from backburner.domain.job import Job, JobState, NewJob
from backburner.engine.submission import MAX_KEY_LENGTH, Options, instant
from backburner.http import body, contents, wire
from backburner.http.auth import Caller, require
from backburner.http.door import door_of
from backburner.http.problems import (
    BodyTooLarge,
    MalformedBody,
    NoResult,
    TooManyBodies,
    UnsupportedMediaType,
    documented,
    request_id_of,
)
from backburner.http.schemas import JobPage, JobQuery, JobRequest, JobView
from backburner.http.straight import StraightRoute
from backburner.ports.store import JobFilter

router = APIRouter(tags=["jobs"])
hot = APIRouter(tags=["jobs"], route_class=StraightRoute)

Reader = Annotated[Caller, require("jobs:read")]
Writer = Annotated[Caller, require("jobs:write")]
Prefer = Annotated[
    str | None,
    Header(
        description="`wait=N`: answer when the job ends, or after N seconds (≤ 60).",
        examples=["wait=10"],
    ),
]

MAX_WAIT = 60
MAX_RETRY_AFTER = 60
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?(?:$|[,;\s])", re.IGNORECASE)

RETRY_AFTER = {
    "Retry-After": {
        "description": "When to ask again, in seconds.",
        "schema": {"type": "integer"},
    }
}
LOCATION = {
    "Location": {"description": "Where the job is.", "schema": {"type": "string"}}
}
APPLIED = {
    "Preference-Applied": {
        "description": "The wait that was granted.",
        "schema": {"type": "string"},
    }
}
REPLAYED = {
    "Idempotency-Replayed": {
        "description": "`true`: the key was known, and this is its job.",
        "schema": {"type": "string"},
    }
}


def json_body(model: str) -> dict[str, Any]:
    """Describe for OpenAPI a body that the route reads by itself."""
    schema = {"$ref": f"#/components/schemas/{model}"}
    return {"required": True, "content": {body.JSON: {"schema": schema}}}


@hot.post(
    "/v1/jobs",
    operation_id="submit_job",
    summary="Submit a job",
    status_code=202,
    response_model=JobView,
    responses={
        200: {
            "model": JobView,
            "description": "It ended within the wait that was asked for.",
            "headers": {**LOCATION, **APPLIED, **REPLAYED},
        },
        202: {
            "description": "The job is durable and will reach its end.",
            "headers": {**LOCATION, **APPLIED, **REPLAYED, **RETRY_AFTER},
        },
        **documented(
            MalformedBody,
            UnknownCapability,
            BodyTooLarge,
            UnsupportedMediaType,
            InvalidInput,
            IdempotencyConflict,
            TooManyBodies,
            StoreUnavailable,
            StoreFull,
        ),
    },
    openapi_extra={
        "requestBody": json_body("JobRequest"),
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "The same key and body within 24 h: the same job.",
                "schema": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_KEY_LENGTH,
                    "pattern": r"^[!#-~]+$",
                },
            },
            {
                "name": "Prefer",
                "in": "header",
                "description": "`wait=N`: answer 200 if it ends within N seconds.",
                "schema": {"type": "string"},
                "example": "wait=10",
            },
        ],
    },
)
async def submit(request: Request, caller: Writer) -> Response:
    """
    Store a job and answer with its receipt.

    A repeat under the same idempotency key gets the same receipt, word for word: the
    job as it was accepted. Where it stands now is at `Location`.
    """
    door = door_of(request)
    with door.bodies.place(request):
        asked = await body.read(request, JobRequest, limit=door.settings.body_limit)
        options = _options(asked, request, caller)
        given = orjson.dumps(asked.input)
        new = door.engine.prepare(asked.capability, given, options)
        submitted = (await door.engine.store_jobs([new]))[0]
        # It may be large, and the caller may wait: nobody needs it any more.
        del asked, given
        new.input = ""
    headers = {"Location": wire.location(submitted.id)}
    if submitted.replayed:
        headers["Idempotency-Replayed"] = "true"
        first = await door.engine.find(submitted.id, caller.owner)
        new = _as_first_asked(new, first)
    prefer = request.headers.get("prefer")
    if prefer is not None and (seconds := _seconds(prefer)) is not None:
        headers["Preference-Applied"] = f"wait={seconds}"
        # The job is stored: a store that cannot be read now does not take that back.
        with suppress(StoreUnavailable):
            job = await _wait(request, caller, new.id, seconds)
            if job.state.is_final:
                return await _answer_whole(request, job, headers)
    headers["Retry-After"] = "1"
    return wire.answer(wire.receipt(new, _first_state(new)), 202, headers)


@router.get(
    "/v1/jobs",
    operation_id="list_jobs",
    summary="List jobs, newest first",
    response_model=JobPage,
    responses={
        200: {
            "description": "A page of jobs.",
            "headers": {
                "Link": {
                    "description": 'The next page, `rel="next"`.',
                    "schema": {"type": "string"},
                }
            },
        },
        **documented(InvalidInput, StoreUnavailable),
    },
)
async def listing(
    request: Request, caller: Reader, query: Annotated[JobQuery, Query()]
) -> Response:
    """List the caller's jobs. `cursor` takes `next_cursor` of the page before."""
    where = JobFilter(
        owner=caller.owner,
        state=query.state,
        capability=query.capability,
        queue=query.queue,
        tag=query.tag,
        since=instant(query.since),
    )
    jobs = await door_of(request).engine.jobs(
        where, before=wire.read_cursor(query.cursor), limit=query.limit + 1
    )
    return wire.page(jobs, limit=query.limit, here=here(request))


@router.get(
    "/v1/jobs/{job_id}",
    operation_id="get_job",
    summary="Look at a job",
    response_model=JobView,
    responses={
        200: {
            "description": "The job.",
            "headers": {
                **RETRY_AFTER,
                **APPLIED,
                "ETag": {
                    "description": "Changes with the job.",
                    "schema": {"type": "string"},
                },
            },
        },
        304: {"description": "It is as `If-None-Match` says."},
        **documented(JobNotFound, InvalidInput, StoreUnavailable),
    },
)
async def show(
    request: Request,
    caller: Reader,
    job_id: str,
    prefer: Prefer = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Return a job with its input, output and attempts; `Retry-After` until it ends."""
    headers: dict[str, str] = {}
    job = await _find(request, caller, job_id, prefer, headers)
    headers |= {"ETag": _etag(job), "Cache-Control": "private, no-cache"}
    if if_none_match is not None and _matches(if_none_match, _etag(job)):
        return Response(status_code=304, headers=headers)
    return await _answer_whole(request, job, headers)


@router.get(
    "/v1/jobs/{job_id}/result",
    operation_id="get_result",
    summary="Get a job's result",
    response_model=None,
    responses={
        200: {
            "description": "The output, as the capability returned it.",
            "content": {wire.MEDIA_TYPE: {"schema": {}}},
            "headers": APPLIED,
        },
        202: {
            "model": JobView,
            "description": "Not yet: this is the job.",
            "headers": {**RETRY_AFTER, **APPLIED},
        },
        **documented(
            JobNotFound, BlobMissing, NoResult, InvalidInput, StoreUnavailable
        ),
    },
)
async def result(
    request: Request, caller: Reader, job_id: str, prefer: Prefer = None
) -> Response:
    """
    Return the bare output.

    A job that failed or was cancelled answers 409 `NO_RESULT`, with the job's own
    error as `error`.
    """
    headers: dict[str, str] = {}
    job = await _find(request, caller, job_id, prefer, headers)
    if job.state is JobState.SUCCEEDED:
        payloads = door_of(request).engine.payloads
        return await contents.answer_text(payloads, job.output, headers)
    if job.state.is_final:
        raise NoResult(job)
    headers["Retry-After"] = _retry_after(request, job)
    return wire.answer(wire.summary(job), 202, headers)


@router.post(
    "/v1/jobs/{job_id}/cancel",
    operation_id="cancel_job",
    summary="Cancel a job",
    response_model=JobView,
    responses={
        200: {"description": "The job is cancelled, now or before."},
        **documented(
            JobNotFound, IllegalTransition, InvalidInput, StoreUnavailable, StoreFull
        ),
    },
)
async def cancel(request: Request, caller: Writer, job_id: str) -> Response:
    """End a job now; a running handler is interrupted. Asking twice is no error."""
    job = await door_of(request).engine.cancel(job_id, caller.owner)
    return await _answer_whole(request, job, {})


@router.post(
    "/v1/jobs/{job_id}/retry",
    operation_id="retry_job",
    summary="Retry a failed job",
    status_code=202,
    response_model=JobView,
    responses={
        202: {"description": "It is queued again.", "headers": LOCATION},
        **documented(
            JobNotFound, IllegalTransition, InvalidInput, StoreUnavailable, StoreFull
        ),
    },
)
async def retry(request: Request, caller: Writer, job_id: str) -> Response:
    """Queue a failed job again, in its next generation, with fresh attempts."""
    return await retried(request, caller, job_id)


async def retried(request: Request, caller: Caller, job_id: str) -> Response:
    """Queue a dead letter again and answer with the job."""
    job = await door_of(request).engine.retry(job_id, caller.owner)
    headers = {"Location": wire.location(job.id), "Retry-After": "1"}
    return wire.answer(wire.summary(job), 202, headers)


def here(request: Request) -> str:
    """Return where a request is, without its cursor."""
    kept = [(k, v) for k, v in request.query_params.multi_items() if k != "cursor"]
    return f"{request.url.path}?{urlencode(kept)}" if kept else request.url.path


def _options(asked: JobRequest, request: Request, caller: Caller) -> Options:
    key = request.headers.get("idempotency-key")
    return Options(
        queue=asked.queue,
        priority=asked.priority,
        run_at=asked.run_at,
        start_by=asked.start_by,
        deadline=asked.deadline,
        tags=asked.tags,
        idempotency_key=key if key is None else _unquoted(key),
        owner=caller.owner,
        request_id=request_id_of(request),
    )


def _unquoted(key: str) -> str:
    """Take the key bare or as a structured string."""
    is_quoted = len(key) > 1 and key[0] == key[-1] == '"'
    return key[1:-1] if is_quoted else key


def _as_first_asked(repeat: NewJob, first: Job) -> NewJob:
    """Turn a repeat into the request it repeats: the bodies are the same."""
    return replace(
        repeat,
        id=first.id,
        created_at=first.created_at,
        max_attempts=first.max_attempts,
        request_id=first.request_id,
    )


def _first_state(job: NewJob) -> JobState:
    waits = job.run_at is not None and job.run_at > job.created_at
    return JobState.SCHEDULED if waits else JobState.QUEUED


def _seconds(prefer: str) -> int | None:
    """Return how long the caller would wait, if it says so."""
    found = _WAIT.search(prefer)
    return None if found is None else min(int(found[1]), MAX_WAIT)


async def _find(
    request: Request,
    caller: Caller,
    job_id: str,
    prefer: str | None,
    headers: dict[str, str],
) -> Job:
    seconds = None if prefer is None else _seconds(prefer)
    if seconds is None:
        return await door_of(request).engine.find(job_id, caller.owner)
    headers["Preference-Applied"] = f"wait={seconds}"
    return await _wait(request, caller, job_id, seconds)


async def _wait(request: Request, caller: Caller, job_id: str, seconds: int) -> Job:
    """Return the job when it ends; as it is when time, client or server are gone."""
    engine, streams = door_of(request).engine, door_of(request).streams
    if not streams.is_full:
        with streams.place():
            waiting = engine.wait(job_id, caller.owner, timeout=seconds)
            job = await streams.run(waiting, request.receive)
        if job is not None:
            return job
    return await engine.find(job_id, caller.owner)


async def _answer_whole(
    request: Request, job: Job, headers: dict[str, str]
) -> Response:
    if not job.state.is_final:
        headers["Retry-After"] = _retry_after(request, job)
    engine = door_of(request).engine
    attempts = await engine.attempts(job)
    return await contents.answer_whole(engine.payloads, job, attempts, headers)


def _retry_after(request: Request, job: Job) -> str:
    if job.state is not JobState.SCHEDULED or job.run_at is None:
        return "1"
    seconds = -(-(job.run_at - door_of(request).engine.now()) // 1000)
    return str(min(max(1, seconds), MAX_RETRY_AFTER))


def _etag(job: Job) -> str:
    # Every change of a job is told by an event, so their count names its version.
    return f'"{job.events}"'


def _matches(if_none_match: str, etag: str) -> bool:
    named = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in named or "*" in named
