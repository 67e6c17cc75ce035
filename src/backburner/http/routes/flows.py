"""Flows over HTTP: submit, find, wait, follow, cancel, retry."""

from contextlib import suppress
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import (
    BatchNotFound,
    BudgetExhausted,
    FlowNotFound,
    IllegalTransition,
    StoreUnavailable,
)
from backburner.domain.groups.flow import FlowRecord, NewFlow
from backburner.domain.jobs.job import Submitted
from backburner.engine.groups.flows import StepFilter
from backburner.http import audit, body, group_wire, headers, wire
from backburner.http.auth import Caller, Reader, Retrier, Writer, check_shares
from backburner.http.prefer import PREFER, FindOrWait, Prefer, found, wait_of
from backburner.http.problems import documented
from backburner.http.routes import groups, jobs
from backburner.http.routes.events import (
    After,
    LastEventId,
    ended,
    event_stream,
    until_end,
)
from backburner.http.schemas.groups import (
    FlowGraphView,
    FlowPage,
    FlowQuery,
    FlowRequest,
    FlowView,
    StepPage,
    StepQuery,
)
from backburner.http.shared_answers import shareable
from backburner.http.state import server_state_of
from backburner.http.streams.access import StreamReader
from backburner.ports.store.flows import GroupFilter

router = APIRouter(tags=["flows"])


@router.post(
    "/v1/flows",
    operation_id="submit_flow",
    summary="Submit a flow",
    status_code=202,
    response_model=FlowView,
    responses=groups.submitted(FlowView),
    openapi_extra={
        "requestBody": jobs.json_body("FlowRequest"),
        "parameters": [headers.IDEMPOTENCY_KEY, PREFER],
    },
)
async def submit(request: Request, caller: Writer) -> Response:
    """
    Submit jobs that depend on each other, all or none.

    The flow is validated as a whole first: cycles, unknown steps and capabilities,
    invalid inputs, and outputs that cannot be the input of the next step.
    """
    server_state = server_state_of(request)
    with server_state.bodies.place(request):
        new = await _prepared(request, caller)
        entries = audit.entries_of_submit(request, caller, "flow.submitted", new.id)
        submitted = (await server_state.engine.flows.store([new], entries))[0]
        groups.forget_inputs(step.job for step in new.steps)
    return await _receipt(request, caller, new, submitted)


async def _prepared(request: Request, caller: Caller) -> NewFlow:
    server_state = server_state_of(request)
    asked = await server_state.read(request, FlowRequest)
    check_shares(caller, groups.shares_of([asked]))
    origin, key = headers.origin(request, caller), headers.key_of(request)
    flow, options = groups.flow_of(asked), groups.options_of(asked, origin, key)
    prepare = partial(server_state.engine.flows.prepare, flow, options)
    return await body.checked(request, prepare, many=len(flow.steps) > groups.AT_ONCE)


async def _receipt(
    request: Request, caller: Caller, new: NewFlow, submitted: Submitted
) -> Response:
    told = {"Location": group_wire.flow_location(submitted.id)}
    if submitted.replayed:
        told["Idempotency-Replayed"] = "true"
    prefer = request.headers.get("prefer")
    if wait_of(prefer) is not None:
        # The flow is stored, even if the store cannot be read at the moment.
        with suppress(StoreUnavailable):
            flow = await _find(request, caller, submitted.id, prefer, told)
            if flow.state.is_final:
                return await _answer(request, flow, 200, told)
    told["Retry-After"] = "1"
    if not submitted.replayed:
        return wire.answer(group_wire.new_flow(new), 202, told)
    flow = await server_state_of(request).engine.flows.find(submitted.id, caller.owner)
    return await _answer(request, flow, 202, told)


@router.get(
    "/v1/flows",
    operation_id="list_flows",
    summary="List flows, newest first",
    response_model=FlowPage,
    responses={
        200: {"description": "A page of flows.", "headers": headers.LINK},
        **documented(BatchNotFound),
    },
)
async def listing(
    request: Request, caller: Reader, query: Annotated[FlowQuery, Query()]
) -> Response:
    """List the caller's flows, without their steps."""
    engine = server_state_of(request).engine
    where = GroupFilter(caller.visible, query.state, query.tag)
    if query.batch is not None:
        batch = await engine.batches.find(query.batch, caller.visible)
        where = where._replace(batch=batch.seq)
    flows = await engine.flows.list(
        where, before=wire.read_cursor(query.cursor), limit=query.limit + 1
    )
    return wire.page(request, flows, limit=query.limit, write=group_wire.flow)


@router.get(
    "/v1/flows/{flow_id}",
    operation_id="get_flow",
    summary="Get a flow",
    response_model=FlowView,
    responses={
        200: {"description": "The flow.", "headers": groups.SHOWN},
        304: {"description": "Not modified since `If-None-Match`."},
        **documented(FlowNotFound),
    },
)
async def show(
    request: Request,
    caller: Reader,
    flow_id: str,
    prefer: Prefer = None,
    if_none_match: headers.IfNoneMatch = None,
) -> Response:
    """Return a flow with its steps. `Retry-After` is set until the flow has ended."""
    told: dict[str, str] = {}
    flow = await _find(request, caller, flow_id, prefer, told)
    steps = await server_state_of(request).engine.flows.steps(flow)
    if not flow.state.is_final:
        told["Retry-After"] = "1"
    return groups.answer_version(
        group_wire.whole_flow(flow, steps), if_none_match, told
    )


@router.get(
    "/v1/flows/{flow_id}/steps",
    operation_id="list_flow_steps",
    summary="List the steps of a flow",
    response_model=StepPage,
    responses={
        200: {"description": "A page of steps.", "headers": headers.LINK},
        **documented(FlowNotFound),
    },
)
async def steps(
    request: Request,
    caller: Reader,
    flow_id: str,
    query: Annotated[StepQuery, Query()],
) -> Response:
    """List the steps of a flow page by page, each after its prerequisites."""
    flows = server_state_of(request).engine.flows
    flow = await flows.find(flow_id, caller.visible)
    found = await flows.some_steps(
        flow,
        StepFilter(query.state, query.node),
        after=wire.read_cursor(query.cursor),
        limit=query.limit + 1,
    )
    return wire.page(request, found, limit=query.limit, write=group_wire.step)


@router.get(
    "/v1/flows/{flow_id}/graph",
    operation_id="get_flow_graph",
    summary="Get the graph of a flow",
    response_model=FlowGraphView,
    responses=documented(FlowNotFound),
)
@shareable
async def graph(request: Request, caller: Reader, flow_id: str) -> Response:
    """
    Return a flow and its graph of at most 160 nodes; similar steps share a node.

    The index of a node is valid until steps are added to the flow.
    """
    flows = server_state_of(request).engine.flows
    flow = await flows.find(flow_id, caller.visible)
    drawn, firsts = await flows.graph(flow)
    return wire.answer(group_wire.graph(flow, drawn, firsts))


@router.post(
    "/v1/flows/{flow_id}/cancel",
    operation_id="cancel_flow",
    summary="Cancel a flow",
    response_model=FlowView,
    response_description="The flow is cancelled; none of its jobs runs.",
    responses=documented(FlowNotFound, IllegalTransition, writes=True),
)
async def cancel(request: Request, caller: Writer, flow_id: str) -> Response:
    """
    Cancel all steps of a flow that have not ended.

    Repeating this is not an error. A flow that succeeded or failed is refused with 409.
    """
    flows = server_state_of(request).engine.flows
    if not (await flows.find(flow_id, caller.changeable)).state.is_final:
        await audit.record(request, caller, "flow.cancelled", flow_id)
    flow = await flows.cancel(flow_id, caller.changeable)
    return await _answer(request, flow, 200, {})


@router.post(
    "/v1/flows/{flow_id}/retry",
    operation_id="retry_flow",
    summary="Retry a flow's failed steps",
    status_code=202,
    response_model=FlowView,
    responses={
        202: {"description": "The flow is running again.", "headers": headers.LOCATION},
        **documented(FlowNotFound, IllegalTransition, BudgetExhausted, writes=True),
    },
)
async def retry(request: Request, caller: Retrier, flow_id: str) -> Response:
    """Queue failed steps again; steps cancelled because of them are blocked again."""
    flows = server_state_of(request).engine.flows
    entry = audit.entry_of(request, caller, "flow.retried", flow_id)
    flow = await flows.retry(flow_id, caller.visible, [entry])
    told = {"Location": group_wire.flow_location(flow_id), "Retry-After": "1"}
    return await _answer(request, flow, 202, told)


@router.get(
    "/v1/flows/{flow_id}/events",
    operation_id="watch_flow",
    summary="Watch a flow",
    response_class=Response,
    responses=until_end(FlowNotFound),
)
async def watch(
    request: Request,
    reader: StreamReader,
    flow_id: str,
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """
    Stream the events of a flow and its steps, until the flow has ended.

    `id:` is the event's number among all events.
    """
    server_state, caller = server_state_of(request), reader.following("flow", flow_id)
    flow = await server_state.engine.flows.find(flow_id, caller.visible)
    start = last_event_id if last_event_id is not None else after or 0
    last = await server_state.engine.flows.last(flow) if flow.state.is_final else None
    if last is not None and start >= last:
        return ended()
    events = server_state.engine.flows.events(flow, after=start)
    return event_stream(events, number=lambda event: event.seq)


async def _find(
    request: Request,
    caller: Caller,
    flow_id: str,
    prefer: str | None,
    told: dict[str, str],
) -> FlowRecord:
    flows = server_state_of(request).engine.flows
    find_or_wait = FindOrWait(
        partial(flows.find, flow_id, caller.visible),
        lambda seconds: flows.wait(flow_id, caller.visible, timeout=seconds),
    )
    return await found(request, prefer, find_or_wait, told)


async def _answer(
    request: Request, flow: FlowRecord, status: int, told: dict[str, str]
) -> Response:
    steps = await server_state_of(request).engine.flows.steps(flow)
    return wire.answer(group_wire.whole_flow(flow, steps), status, told)
