"""Webhook deliveries over HTTP: list and replay."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import (
    BatchNotFound,
    FlowNotFound,
    IllegalTransition,
    JobNotFound,
)
from backburner.domain.jobs.job import JobState
from backburner.engine.webhooks import deliveries
from backburner.http import audit, headers, wire
from backburner.http.auth import Caller, Reader, Writer
from backburner.http.problems import Forbidden, documented
from backburner.http.schemas.jobs import JobPage, JobView
from backburner.http.schemas.webhooks import PageQuery
from backburner.http.state import server_state_of

router = APIRouter(tags=["webhooks"])


RETRY = "dead-letters:retry"
Page = Annotated[PageQuery, Query()]
LISTED: dict[int | str, dict[str, Any]] = {
    200: {"description": "A page of deliveries.", "headers": headers.LINK}
}


@router.get(
    "/v1/jobs/{job_id}/deliveries",
    operation_id="list_job_deliveries",
    summary="List the webhooks of a job",
    response_model=JobPage,
    responses={**LISTED, **documented(JobNotFound)},
)
async def of_job(
    request: Request, caller: Reader, job_id: str, query: Page
) -> Response:
    """List the deliveries of a job, newest first: they are jobs with attempts."""
    await server_state_of(request).engine.find(job_id, caller.visible)
    return await _listed(request, caller, job_id, query)


@router.get(
    "/v1/flows/{flow_id}/deliveries",
    operation_id="list_flow_deliveries",
    summary="List the webhooks of a flow",
    response_model=JobPage,
    responses={**LISTED, **documented(FlowNotFound)},
)
async def of_flow(
    request: Request, caller: Reader, flow_id: str, query: Page
) -> Response:
    """List the deliveries of a flow, newest first; its steps have their own."""
    await server_state_of(request).engine.flows.find(flow_id, caller.visible)
    return await _listed(request, caller, flow_id, query)


@router.get(
    "/v1/batches/{batch_id}/deliveries",
    operation_id="list_batch_deliveries",
    summary="List the webhooks of a batch",
    response_model=JobPage,
    responses={**LISTED, **documented(BatchNotFound)},
)
async def of_batch(
    request: Request, caller: Reader, batch_id: str, query: Page
) -> Response:
    """List the deliveries of a batch, newest first; its members have their own."""
    await server_state_of(request).engine.batches.find(batch_id, caller.visible)
    return await _listed(request, caller, batch_id, query)


@router.post(
    "/v1/deliveries/{job_id}/replay",
    operation_id="replay_delivery",
    summary="Send a webhook again",
    status_code=202,
    response_model=JobView,
    responses={
        202: {"description": "It will be sent.", "headers": headers.LOCATION},
        **documented(JobNotFound, IllegalTransition, writes=True),
    },
)
async def replay(request: Request, caller: Writer, job_id: str) -> Response:
    """
    Send a webhook again, with the same `webhook-id`.

    A failed delivery is retried, which also needs the scope `dead-letters:retry`; for
    any other that has ended, a new delivery is submitted.
    """
    engine = server_state_of(request).engine
    found = await deliveries.find(engine, job_id, caller.owner)
    if found.state is JobState.FAILED:
        if RETRY not in caller.scopes:
            raise Forbidden(f"retrying a dead letter requires the scope {RETRY}")
        action = "dead_letter.retried"
    else:
        action = "delivery.replayed"
    entry = audit.entry_of(request, caller, action, job_id)
    job = await deliveries.replay(engine, job_id, caller.owner, [entry])
    told = {"Location": wire.location(job.id), "Retry-After": "1"}
    return wire.answer(wire.summary(job), 202, told)


async def _listed(
    request: Request, caller: Caller, subject: str, query: PageQuery
) -> Response:
    found = await deliveries.listing(
        server_state_of(request).engine,
        subject,
        caller.visible,
        before=wire.read_cursor(query.cursor),
        limit=query.limit + 1,
    )
    return wire.page(request, found, limit=query.limit, write=wire.summary)
