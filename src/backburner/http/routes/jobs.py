"""Jobs over HTTP: submit, find, wait, cancel, retry."""

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.auth.access import ACT, READ_TENANT
from backburner.domain.costs.usage import Spent
from backburner.domain.errors import (
    BatchNotFound,
    BlobMissing,
    BudgetExhausted,
    FlowNotFound,
    IdempotencyConflict,
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    PromptRefused,
    StoreUnavailable,
    TooManyWaiting,
    UnknownCapability,
)
from backburner.domain.jobs.job import (
    Job,
    JobState,
    NewJob,
    Owner,
    Visibility,
    first_state,
)
from backburner.engine.engine import Engine
from backburner.engine.groups import bulk
from backburner.engine.submit.submission import Options, instant
from backburner.http import audit, body, contents, headers, problems, usage_wire, wire
from backburner.http.auth import Caller, Reader, Retrier, Writer, check_shares
from backburner.http.fast_route import FastRoute
from backburner.http.prefer import (
    APPLIED,
    PREFER,
    FindOrWait,
    Prefer,
    found,
    wait_of,
)
from backburner.http.problems import (
    Forbidden,
    MalformedRequest,
    NoResult,
    TooManyBodies,
    documented,
)
from backburner.http.schemas.jobs import (
    BulkRequest,
    JobChange,
    JobCount,
    JobPage,
    JobQuery,
    JobRequest,
    JobSelection,
    JobView,
    followed_by,
    metadata_of,
    told_to,
)
from backburner.http.shared_answers import shareable
from backburner.http.state import server_state_of
from backburner.ports.store.maintenance import JobFilter

router = APIRouter(tags=["jobs"])
hot = APIRouter(tags=["jobs"], route_class=FastRoute)

Fresh = Annotated[
    bool, Query(description="Discard the stored results of the job's steps.")
]

Content = Annotated[
    bool, Query(description="If false, `input` and `output` are always null.")
]

MAX_RETRY_AFTER = 60
ANY_JOB = JobSelection.model_validate({})
MOST_COUNTED = 10_000
"""Jobs are counted up to here, as counting more takes long."""
REACH = 30_000
"""How many jobs one request reads for filters that have no index."""
RECEIPT = {**headers.LOCATION, **headers.REPLAYED, **APPLIED}
RETRIED: dict[int | str, dict[str, Any]] = {
    202: {"description": "The job is queued again.", "headers": headers.LOCATION},
    **documented(JobNotFound, IllegalTransition, BudgetExhausted, writes=True),
}
"""The responses of a retry, for OpenAPI."""


def json_body(model: str) -> dict[str, Any]:
    """Describe for OpenAPI a body that the route reads itself."""
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
            "description": "The job ended within the requested wait.",
            "headers": RECEIPT,
        },
        202: {
            "description": "The job is durable and will reach a final state. With "
            "`Prefer: wait`, the job as it is when the wait ends.",
            "headers": {**RECEIPT, **headers.RETRY_AFTER},
        },
        **documented(
            MalformedRequest,
            PromptRefused,
            UnknownCapability,
            InvalidInput,
            IdempotencyConflict,
            BudgetExhausted,
            TooManyWaiting,
            TooManyBodies,
            body=True,
            writes=True,
        ),
    },
    openapi_extra={
        "requestBody": json_body("JobRequest"),
        "parameters": [headers.IDEMPOTENCY_KEY, PREFER],
    },
)
async def submit(request: Request, caller: Writer) -> Response:
    """
    Store a job and return its receipt.

    A repeat with the same idempotency key gets exactly the same receipt: the job as it
    was accepted. Its current state is at `Location`. With `Prefer: wait`, the answer is
    the job as it is when the wait ends.
    """
    server_state = server_state_of(request)
    with server_state.bodies.place(request):
        asked = await server_state.read(request, JobRequest)
        check_shares(caller, [asked.share])
        origin = headers.origin(request, caller)
        options = options_of(asked, origin, headers.key_of(request))
        given = orjson.dumps(asked.input)
        prepare = partial(server_state.engine.prepare, asked.capability, given, options)
        new = await body.checked(request, prepare)
        entries = audit.entries_of_submit(request, caller, "job.submitted", new.id)
        submitted = (await server_state.engine.store_jobs([new], entries))[0]
        # The input may be large: release it before the caller waits.
        del asked, given, prepare
        new.input = ""
    told = {"Location": wire.location(submitted.id)}
    if submitted.replayed:
        told["Idempotency-Replayed"] = "true"
        first = await server_state.engine.find(submitted.id, caller.owner)
        new = _as_first_asked(new, first)
    prefer = request.headers.get("prefer")
    if wait_of(prefer) is not None:
        # The job is stored, even if the store cannot be read at the moment.
        with suppress(StoreUnavailable):
            job = await _find(request, caller, new.id, prefer, told)
            if job.state.is_final:
                used = _used(await _spent(request, job))
                return await _answer_whole(request, caller, job, told, used)
            told["Retry-After"] = _retry_after(request, job)
            return wire.answer(wire.summary(job), 202, told)
    told["Retry-After"] = "1"
    return wire.answer(wire.receipt(new, first_state(new)), 202, told)


@router.get(
    "/v1/jobs",
    operation_id="list_jobs",
    summary="List jobs",
    response_model=JobPage,
    responses={
        200: {"description": "A page of jobs.", "headers": headers.LINK},
        **documented(FlowNotFound, BatchNotFound),
    },
)
@shareable
async def listing(
    request: Request, caller: Reader, query: Annotated[JobQuery, Query()]
) -> Response:
    """
    List the caller's jobs, or with the scope `tenant:read` those of its whole tenant.

    Pass `next_cursor` of the previous page as `cursor`. A page may have fewer jobs than
    `limit`, or none, although there are more: continue until `next_cursor` is null.
    """
    engine = server_state_of(request).engine
    where = await selected(engine, query, caller)
    where = replace(where, oldest_first=query.sort == "oldest")
    jobs, onward = await engine.store.walk(
        where,
        before=wire.read_cursor(query.cursor),
        limit=query.limit + 1,
        reach=REACH,
    )
    spent = await engine.store.spent([job.seq for job in jobs])
    return wire.page(
        request,
        jobs,
        limit=query.limit,
        write=lambda job: {**wire.summary(job), **_used(spent.get(job.seq))},
        onward=onward,
    )


@router.get(
    "/v1/jobs/count",
    operation_id="count_jobs",
    summary="Count jobs",
    response_model=JobCount,
    responses=documented(FlowNotFound, BatchNotFound),
)
@shareable
async def counting(
    request: Request, caller: Reader, query: Annotated[JobSelection, Query()]
) -> Response:
    """
    Count the jobs that a list with the same filters shows, up to 10,000.

    With filters that have no index, only the newest 30,000 jobs (3,000 of one user,
    10,000 dead letters), or the newest in the given time, are read. `capped` means that
    there may be more.
    """
    engine = server_state_of(request).engine
    where = await selected(engine, query, caller)
    found, is_all = await engine.store.count_within(
        where, most=MOST_COUNTED + 1, reach=REACH
    )
    counted = min(found, MOST_COUNTED)
    return wire.answer({"count": counted, "capped": not is_all})


@router.post(
    "/v1/jobs/bulk",
    operation_id="change_jobs",
    summary="Cancel or retry many jobs",
    status_code=202,
    response_model=JobView,
    responses={
        202: {
            "description": "This job runs the action and reports its progress.",
            "headers": headers.LOCATION,
        },
        **documented(
            FlowNotFound, BatchNotFound, TooManyWaiting, body=True, writes=True
        ),
    },
    openapi_extra={"requestBody": json_body("BulkRequest")},
)
async def change_many(request: Request, caller: Reader) -> Response:
    """
    Submit a job that cancels or retries the named jobs, or all that match.

    It changes only jobs that were submitted before it and that the caller could also
    change individually: `cancel` needs `jobs:write` and affects the caller's own jobs,
    or with `users:act` and `tenant:read` those of all users of its tenant; `retry`
    needs `dead-letters:retry` and affects all jobs that the caller sees. With `staged`,
    it retries one job, then ten, then all, and stops if more than half of the jobs of a
    stage fail again.
    """
    server_state = server_state_of(request)
    asked = await server_state.read(request, BulkRequest)
    scope = "jobs:write" if asked.action == "cancel" else "dead-letters:retry"
    if scope not in caller.scopes:
        raise Forbidden(f"this needs the scope {scope}")
    where = await selected(
        server_state.engine,
        asked.where or ANY_JOB,
        caller,
        to_cancel=asked.action == "cancel",
    )
    reach = where.owner
    if asked.where is not None:
        able = bulk.able(where, asked.action)
        matched = 0
        if able is not None:
            matched, _ = await server_state.engine.store.count_within(
                able, most=MOST_COUNTED, reach=REACH
            )
    else:
        matched = len(asked.ids or ())
    given = bulk.BulkInput(
        action=asked.action,
        ids=asked.ids,
        where=_fields(where),
        user=reach.user if isinstance(reach, Owner) else None,
        staged=asked.staged,
        matched=matched,
        key=caller.key,
    )
    new = bulk.new_job(
        server_state.engine.draw("job"),
        server_state.engine.now(),
        caller.owner,
        given,
        problems.request_id_of(request),
    )
    await bulk.check_room(server_state.engine.store, new)
    target = bulk.summary(new.id, given)
    action = f"jobs.bulk_{asked.action}"
    entry = audit.entry_of(request, caller, action, target)
    await server_state.engine.store_jobs([new], [entry])
    told = {"Location": wire.location(new.id), "Retry-After": "1"}
    return wire.answer(wire.receipt(new, first_state(new)), 202, told)


def _fields(where: JobFilter) -> dict[str, Any]:
    """Return a filter in the form of a job's input, without its owner."""
    fields = {
        field.name: getattr(where, field.name)
        for field in dataclasses.fields(where)
        if field.name not in ("owner", "oldest_first")
    }
    fields["states"] = sorted(where.states)
    return {name: value for name, value in fields.items() if value not in (None, [])}


async def selected(
    engine: Engine, asked: JobSelection, caller: Caller, *, to_cancel: bool = False
) -> JobFilter:
    """Return the filter for a selection among the jobs that a caller can reach."""
    states: frozenset[JobState] = asked.state or frozenset()
    only = next(iter(states)) if len(states) == 1 else None
    flow = batch = None
    if asked.flow is not None:
        flow = (await engine.flows.find(asked.flow, caller.visible)).seq
    if asked.batch is not None:
        batch = (await engine.batches.find(asked.batch, caller.visible)).seq
    return JobFilter(
        owner=_owner(asked.user, caller, to_cancel=to_cancel),
        state=only,
        states=frozenset() if only else states,
        capability=asked.capability,
        queue=asked.queue,
        tag=asked.tag,
        metadata=metadata_of(asked.metadata) if asked.metadata else None,
        since=instant(asked.since),
        until=instant(asked.until),
        fingerprint=asked.fingerprint,
        flow=flow,
        batch=batch,
        worker=asked.worker,
    )


def _owner(user: str | None, caller: Caller, *, to_cancel: bool) -> Visibility:
    """Return whose jobs are selected: all that the caller reaches, or one user's."""
    reach = caller.changeable if to_cancel else caller.visible
    wanted = reach if user is None else Owner(caller.owner.tenant, user)
    if isinstance(wanted, Owner) and not reach.covers(wanted):
        if caller.names_user:
            raise Forbidden("X-User-Id and `user` name different users: send one")
        if to_cancel:
            needed = f"cancelling another user's jobs requires the scopes {ACT}"
            raise Forbidden(f"{needed} and {READ_TENANT}")
        raise Forbidden(f"listing the jobs of another user requires {READ_TENANT}")
    return wanted


@router.get(
    "/v1/jobs/{job_id}",
    operation_id="get_job",
    summary="Get a job",
    response_model=JobView,
    responses={
        200: {
            "description": "The job.",
            "headers": {**headers.RETRY_AFTER, **headers.ETAG, **APPLIED},
        },
        304: {"description": "Not modified since `If-None-Match`."},
        **documented(JobNotFound),
    },
)
async def show(
    request: Request,
    caller: Reader,
    job_id: str,
    prefer: Prefer = None,
    if_none_match: headers.IfNoneMatch = None,
    *,
    content: Content = True,
) -> Response:
    """
    Return a job with its input, output and attempts.

    `Retry-After` is set until the job has ended.
    """
    told: dict[str, str] = {}
    job = await _find(request, caller, job_id, prefer, told)
    spent = await _spent(request, job)
    etag = _etag(caller, job, spent)
    if not content:
        job, etag = _without_content(job), f'{etag[:-1]}-s"'
    told |= {"ETag": etag, "Cache-Control": "private, no-cache"}
    if headers.matches(if_none_match, etag):
        return Response(status_code=304, headers=told)
    return await _answer_whole(request, caller, job, told, _used(spent))


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
            "description": "The job has not ended; the response is the job.",
            "headers": {**headers.RETRY_AFTER, **APPLIED},
        },
        **documented(JobNotFound, BlobMissing, NoResult),
    },
)
async def result(
    request: Request, caller: Reader, job_id: str, prefer: Prefer = None
) -> Response:
    """
    Return the output only.

    For a job that failed or was cancelled, the response is 409 `NO_RESULT`, with the
    job's own error as `error`.
    """
    told: dict[str, str] = {}
    job = await _find(request, caller, job_id, prefer, told)
    if job.state is JobState.SUCCEEDED:
        payloads = server_state_of(request).engine.payloads
        return await contents.answer_text(payloads, job.output, told)
    if job.state.is_final:
        raise NoResult(job)
    told["Retry-After"] = _retry_after(request, job)
    return wire.answer(wire.summary(job), 202, told)


@router.patch(
    "/v1/jobs/{job_id}",
    operation_id="change_job",
    summary="Change a job's priority or start time",
    response_model=JobView,
    response_description="The job.",
    responses=documented(JobNotFound, IllegalTransition, body=True, writes=True),
    openapi_extra={"requestBody": json_body("JobChange")},
)
async def change(request: Request, caller: Writer, job_id: str) -> Response:
    """
    Change the priority or the start time of a job that has not started.

    `run_at` applies to jobs that are `scheduled` or `queued`; null means as soon as
    possible. The change is recorded in the audit log.
    """
    server_state = server_state_of(request)
    asked = await server_state.read(request, JobChange)
    engine = server_state.engine
    is_timed = "run_at" in asked.model_fields_set
    entry = audit.entry_of(request, caller, "job.changed", _told(job_id, asked))
    job = await engine.change(
        job_id,
        caller.changeable,
        priority=asked.priority,
        run_at=instant(asked.run_at) if is_timed else ...,
        entries=[entry],
    )
    return wire.answer(wire.summary(job))


def _told(job_id: str, asked: JobChange) -> str:
    """Return which job is changed, and to what, for the audit log."""
    told: dict[str, Any] = {"job": job_id}
    if asked.priority is not None:
        told["priority"] = asked.priority
    if "run_at" in asked.model_fields_set:
        told["run_at"] = wire.time(instant(asked.run_at))
    return orjson.dumps(told).decode()


@router.post(
    "/v1/jobs/{job_id}/cancel",
    operation_id="cancel_job",
    summary="Cancel a job",
    response_model=JobView,
    response_description="The job is cancelled, by this request or an earlier one.",
    responses=documented(JobNotFound, IllegalTransition, writes=True),
)
async def cancel(request: Request, caller: Writer, job_id: str) -> Response:
    """
    Cancel a job; a running handler is interrupted. Repeating this is not an error.

    The response has a receipt: what the job had used, what was held for it and is
    released, and what cannot be undone. A repeat returns the same receipt. The
    cancellation is recorded in the audit log.
    """
    engine = server_state_of(request).engine
    if not (await engine.find(job_id, caller.changeable)).state.is_final:
        await audit.record(request, caller, "job.cancelled", job_id)
    job = await engine.cancel(job_id, caller.changeable)
    receipt = await engine.quoting.receipt(job, await engine.attempts(job))
    more = {"receipt": usage_wire.receipt(receipt)}
    more |= _used(await _spent(request, job))
    return await _answer_whole(request, caller, job, {}, more)


@router.post(
    "/v1/jobs/{job_id}/retry",
    operation_id="retry_job",
    summary="Retry a failed job",
    status_code=202,
    response_model=JobView,
    responses=RETRIED,
)
async def retry(
    request: Request, caller: Retrier, job_id: str, *, fresh: Fresh = False
) -> Response:
    """Queue a failed job again, in its next generation, with new attempts."""
    return await retried(request, caller, job_id, fresh=fresh)


async def retried(
    request: Request, caller: Caller, job_id: str, *, fresh: bool = False
) -> Response:
    """Queue a dead letter again, with an audit entry, and respond with the job."""
    entry = audit.entry_of(request, caller, "dead_letter.retried", job_id)
    job = await server_state_of(request).engine.retry(
        job_id, caller.visible, fresh=fresh, entries=[entry]
    )
    told = {"Location": wire.location(job.id), "Retry-After": "1"}
    return wire.answer(wire.summary(job), 202, told)


def options_of(
    asked: JobRequest, origin: Mapping[str, Any], key: str | None = None
) -> Options:
    """Return the options of a job; `origin` is its owner and where it came from."""
    return Options(
        queue=asked.queue,
        priority=asked.priority,
        run_at=asked.run_at,
        start_by=asked.start_by,
        deadline=asked.deadline,
        tags=asked.tags,
        metadata=asked.metadata,
        max_attempts=asked.max_attempts,
        tokens=asked.tokens,
        share=asked.share,
        callback=told_to(asked.callback),
        completion=followed_by(asked.completion),
        idempotency_key=key,
        **origin,
    )


def _as_first_asked(repeat: NewJob, first: Job) -> NewJob:
    """Return the original request of a repeat: their bodies are the same."""
    return replace(
        repeat,
        id=first.id,
        created_at=first.created_at,
        max_attempts=first.max_attempts,
        metadata=first.metadata,
        request_id=first.request_id,
    )


async def _find(
    request: Request,
    caller: Caller,
    job_id: str,
    prefer: str | None,
    told: dict[str, str],
) -> Job:
    engine = server_state_of(request).engine
    find_or_wait = FindOrWait(
        lambda: engine.find(job_id, caller.visible),
        lambda seconds: engine.wait(job_id, caller.visible, timeout=seconds),
    )
    return await found(request, prefer, find_or_wait, told)


async def _spent(request: Request, job: Job) -> Spent | None:
    return (await server_state_of(request).engine.store.spent([job.seq])).get(job.seq)


def _used(spent: Spent | None) -> dict[str, Any]:
    return {} if spent is None else {"usage": usage_wire.usage(spent)}


async def _answer_whole(
    request: Request,
    caller: Caller,
    job: Job,
    told: dict[str, str],
    more: Mapping[str, Any],
) -> Response:
    if not job.state.is_final:
        told["Retry-After"] = _retry_after(request, job)
    engine = server_state_of(request).engine
    attempts = await engine.attempts(job)
    return await contents.answer_whole(
        engine.payloads, job, attempts, more, told, with_traces=caller.sees_traces
    )


def _without_content(job: Job) -> Job:
    is_done = job.state is JobState.SUCCEEDED
    return replace(job, input="null", output="null" if is_done else None)


def _retry_after(request: Request, job: Job) -> str:
    if job.state is not JobState.SCHEDULED or job.run_at is None:
        return "1"
    seconds = -(-(job.run_at - server_state_of(request).engine.now()) // 1000)
    return str(min(max(1, seconds), MAX_RETRY_AFTER))


def _etag(caller: Caller, job: Job, spent: Spent | None) -> str:
    # Every change of a job is an event, so their number identifies its version. Usage
    # is the exception, and traces are shown to some callers only.
    calls = "" if spent is None else f"-{spent.calls}"
    traces = "-t" if caller.sees_traces else ""
    return f'"{job.events}{calls}{traces}"'
