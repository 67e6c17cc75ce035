"""Usage and quotes over HTTP."""

from datetime import timedelta
from functools import partial
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import (
    JobNotFound,
    PromptRefused,
    TooManyWaiting,
    UnknownCapability,
)
from backburner.domain.jobs.job import Owner
from backburner.engine.engine import Engine
from backburner.engine.submit.submission import instant
from backburner.http import body, headers, usage_wire, wire
from backburner.http.auth import Caller, Reader, check_shares
from backburner.http.problems import (
    Forbidden,
    TooManyBodies,
    documented,
)
from backburner.http.routes import jobs
from backburner.http.schemas.jobs import MAX_LIMIT, JobRequest, Time
from backburner.http.schemas.usage import (
    CostView,
    ModelCallPage,
    QuoteView,
    UsageReport,
)
from backburner.http.shared_answers import shareable
from backburner.http.state import server_state_of
from backburner.ports.store.usage import UsageFilter

router = APIRouter(tags=["usage"])

EVERYONE = "usage:read"
USUAL = timedelta(days=30)
MAX_GROUPS = 1_000
MAX_COSTS = 100


class CallQuery(BaseModel):
    """Selects model calls by time and user."""

    model_config = ConfigDict(extra="forbid")

    since: Time | None = Field(None, description="Start. Default: 30 days ago.")
    until: Time | None = Field(None, description="End. Default: now.")
    everyone: bool = Field(
        False, description="Of all users of the tenant; needs the scope `usage:read`."
    )


class UsageQuery(CallQuery):
    """What to group by."""

    by: Literal["tag", "capability", "model", "user", "day", "minute"] = "model"
    limit: int = Field(100, ge=1, le=MAX_GROUPS)


class CallsQuery(BaseModel):
    """Selects a page of a job's model calls."""

    model_config = ConfigDict(extra="forbid")

    cursor: str | None = Field(None, description="`next_cursor` of the previous page.")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


class CostQuery(CallQuery):
    """How many jobs to list."""

    limit: int = Field(10, ge=1, le=MAX_COSTS)


@router.get(
    "/v1/usage",
    operation_id="get_usage",
    summary="Get the usage of models",
    response_model=UsageReport,
    responses=documented(),
)
@shareable
async def report(
    request: Request, caller: Reader, query: Annotated[UsageQuery, Query()]
) -> Response:
    """
    Add up the caller's model calls by tag, capability, model, user or time (UTC).

    A job with several tags counts for each of them; the total counts it once.
    """
    engine = server_state_of(request).engine
    where = _calls(engine, caller, query)
    total, found = await engine.store.sums(where, query.by, limit=query.limit + 1)
    return wire.answer(
        {
            "by": query.by,
            "since": wire.time(where.since),
            "until": wire.time(where.until),
            "total": usage_wire.total(total),
            "items": [usage_wire.group(*item) for item in found[: query.limit]],
            "more": len(found) > query.limit,
        }
    )


@router.get(
    "/v1/usage/costs",
    operation_id="get_costs",
    summary="Get the cost of model calls",
    response_model=CostView,
    responses=documented(),
)
@shareable
async def costs(
    request: Request, caller: Reader, query: Annotated[CostQuery, Query()]
) -> Response:
    """
    Return the cost of the newest model calls by purpose, and the most expensive jobs.

    At most the newest 10,000 calls are counted: `since` is the time of the oldest one.
    """
    engine = server_state_of(request).engine
    found = await engine.store.costs(_calls(engine, caller, query), limit=query.limit)
    tenant = caller.owner.tenant
    seen = [job for job in found.jobs if caller.visible.covers(Owner(tenant, job.user))]
    return wire.answer(usage_wire.costs(found._replace(jobs=seen)))


def _calls(engine: Engine, caller: Caller, query: CallQuery) -> UsageFilter:
    if query.everyone and EVERYONE not in caller.scopes:
        raise Forbidden(f"this requires the scope {EVERYONE}")
    since = instant(query.since)
    if since is None:
        since = engine.now() - USUAL // timedelta(milliseconds=1)
    user = None if query.everyone else caller.owner.user
    return UsageFilter(caller.owner.tenant, user, since, instant(query.until))


@router.get(
    "/v1/jobs/{job_id}/calls",
    operation_id="list_model_calls",
    summary="List the model calls of a job",
    response_model=ModelCallPage,
    responses={
        200: {"description": "A page of calls.", "headers": headers.LINK},
        **documented(JobNotFound),
    },
)
async def calls(
    request: Request,
    caller: Reader,
    job_id: str,
    query: Annotated[CallsQuery, Query()],
) -> Response:
    """
    List the model calls of a job one by one, of all its runs, oldest first.

    The newest calls of a run that is under way may be missing. Prompts and answers are
    not part of it.
    """
    engine = server_state_of(request).engine
    job = await engine.find(job_id, caller.visible)
    found = await engine.store.calls_of(
        job.seq, after=wire.read_cursor(query.cursor) or 0, limit=query.limit + 1
    )
    return wire.page(request, found, limit=query.limit, write=usage_wire.call)


@router.post(
    "/v1/quote",
    operation_id="quote_job",
    summary="Estimate tokens, cost and time of a job",
    response_model=QuoteView,
    responses=documented(
        PromptRefused, UnknownCapability, TooManyWaiting, TooManyBodies, body=True
    ),
    openapi_extra={"requestBody": jobs.json_body("JobRequest")},
)
async def quote(request: Request, caller: Reader) -> Response:
    """
    Estimate what a job would use and cost, and when it would start and end.

    The request is validated like a submission; nothing is stored and nothing is held.
    """
    server_state = server_state_of(request)
    with server_state.bodies.place(request):
        asked = await server_state.read(request, JobRequest)
        check_shares(caller, [asked.share])
        options = jobs.options_of(asked, headers.origin(request, caller))
        given = orjson.dumps(asked.input)
        prepare = partial(server_state.engine.prepare, asked.capability, given, options)
        job = await body.checked(request, prepare)
        job.input = ""
        del asked, given, prepare
    return wire.answer(usage_wire.quote(await server_state.engine.quoting.quote(job)))
