"""Dead letters over HTTP: list by cause, show, retry."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import (
    BudgetExhausted,
    FieldError,
    InvalidInput,
    JobNotFound,
)
from backburner.domain.jobs.job import JobState
from backburner.engine.groups.retrying import count_retriable
from backburner.http import audit, contents, wire
from backburner.http.auth import Caller, Retrier, require
from backburner.http.problems import (
    documented,
)
from backburner.http.routes import jobs
from backburner.http.schemas.jobs import (
    DeadLetterQuery,
    FailurePage,
    JobPage,
    JobView,
    Retried,
    RetryRequest,
)
from backburner.http.shared_answers import shareable
from backburner.http.state import server_state_of
from backburner.ports.store.maintenance import JobFilter

router = APIRouter(tags=["dead letters"])

Reader = Annotated[Caller, require("dead-letters:read")]


@router.get(
    "/v1/dead-letters",
    operation_id="list_dead_letters",
    summary="List dead letters",
    response_model=FailurePage | JobPage,
    response_description="The groups, or with `fingerprint` the jobs of one group.",
    responses=documented(),
)
@shareable
async def listing(
    request: Request, caller: Reader, query: Annotated[DeadLetterQuery, Query()]
) -> Response:
    """
    List dead letters grouped by cause, latest first.

    With `fingerprint`, list the jobs of one group.
    """
    engine = server_state_of(request).engine
    if query.fingerprint is None:
        if query.cursor is not None:
            told = FieldError("query.cursor", "is allowed only with `fingerprint`")
            raise InvalidInput("groups are not paged", [told])
        groups = await engine.failures(caller.visible, limit=query.limit + 1)
        hit = await engine.store.impacts(caller.visible) if query.impact else {}
        items = [
            wire.failure_group(group, hit.get(group.fingerprint))
            for group in groups[: query.limit]
        ]
        more = len(groups) > query.limit
        return wire.answer({"items": items, "next_cursor": None, "more": more})
    where = JobFilter(
        owner=caller.visible, state=JobState.FAILED, fingerprint=query.fingerprint
    )
    found = await engine.jobs(
        where, before=wire.read_cursor(query.cursor), limit=query.limit + 1
    )
    return wire.page(request, found, limit=query.limit, write=wire.summary)


@router.post(
    "/v1/dead-letters/retry",
    operation_id="retry_dead_letters",
    summary="Retry many dead letters",
    response_model=Retried,
    response_description="How many matched, and how many are queued again.",
    responses=documented(BudgetExhausted, body=True, writes=True),
    openapi_extra={"requestBody": jobs.json_body("RetryRequest")},
)
async def retry_many(request: Request, caller: Retrier) -> Response:
    """
    Queue the newest matching dead letters again, or only count them.

    With `canary`, only that many are retried, to test the outcome. With `rate`, one
    starts at once and the others are scheduled, at that many per second.
    """
    server_state = server_state_of(request)
    asked = await server_state.read(request, RetryRequest)
    where = JobFilter(
        owner=caller.visible,
        state=JobState.FAILED,
        capability=asked.capability,
        queue=asked.queue,
        fingerprint=asked.fingerprint,
    )
    matched = await count_retriable(server_state.engine.store, where)
    retried = 0
    if not asked.dry_run:
        action, target = "dead_letters.retried", _told(asked)
        limit = min(asked.limit, asked.canary or asked.limit)
        retried = await server_state.engine.retry_all(
            where,
            limit=limit,
            rate=asked.rate,
            entries=[audit.entry_of(request, caller, action, target)],
        )
    told = {
        "matched": matched,
        "retried": retried,
        "remaining": max(0, matched - retried),
        "dry_run": asked.dry_run,
    }
    return wire.answer(told)


@router.get(
    "/v1/dead-letters/{job_id}",
    operation_id="get_dead_letter",
    summary="Get a dead letter",
    response_model=JobView,
    response_description="The job.",
    responses=documented(JobNotFound),
)
async def show(request: Request, caller: Reader, job_id: str) -> Response:
    """Return a job that failed permanently; other jobs are not found here."""
    engine = server_state_of(request).engine
    job = await engine.find(job_id, caller.visible)
    if job.state is not JobState.FAILED:
        raise JobNotFound("it is not a dead letter")
    attempts = await engine.attempts(job)
    return await contents.answer_whole(
        engine.payloads, job, attempts, {}, {}, with_traces=caller.sees_traces
    )


@router.post(
    "/v1/dead-letters/{job_id}/retry",
    operation_id="retry_dead_letter",
    summary="Retry a dead letter",
    status_code=202,
    response_model=JobView,
    responses=jobs.RETRIED,
)
async def retry(
    request: Request, caller: Retrier, job_id: str, *, fresh: jobs.Fresh = False
) -> Response:
    """Queue a dead letter again, in its next generation, with new attempts."""
    return await jobs.retried(request, caller, job_id, fresh=fresh)


def _told(asked: RetryRequest) -> str:
    """Return the filter of a bulk retry, for the audit log."""
    return asked.model_dump_json(exclude_none=True, exclude={"dry_run"})
