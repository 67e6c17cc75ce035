"""Batches over HTTP: open, fill, find, wait, follow, cancel, retry."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import (
    BatchNotFound,
    BudgetExhausted,
    StoreUnavailable,
)
from backburner.domain.groups.batch import Batch, BatchState, Members, NewBatch
from backburner.domain.jobs.job import Submitted
from backburner.engine.groups.batches import Batches
from backburner.engine.submit.submission import GroupOptions, check_group, refused_field
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
    MAX_MEMBERS,
    BatchPage,
    BatchQuery,
    BatchRequest,
    BatchView,
    MembersRequest,
)
from backburner.http.schemas.jobs import told_to
from backburner.http.state import server_state_of
from backburner.http.streams.access import StreamReader
from backburner.ports.store.flows import GroupFilter
from backburner.shapes import groups as shapes

router = APIRouter(tags=["batches"])


@router.post(
    "/v1/batches",
    operation_id="open_batch",
    summary="Open a batch",
    status_code=202,
    response_model=BatchView,
    responses=groups.submitted(BatchView),
    openapi_extra={
        "requestBody": jobs.json_body("BatchRequest"),
        "parameters": [headers.IDEMPOTENCY_KEY, PREFER],
    },
)
async def open_batch(request: Request, caller: Writer) -> Response:
    """
    Submit jobs and flows as one batch, all or none.

    It finishes when no more can be added and all of its members have ended. With
    `expected`, it accepts that many members; with `"sealed": false`, any number until
    it is sealed.
    """
    server_state = server_state_of(request)
    with server_state.bodies.place(request):
        new, members = await _read_batch(request, caller)
        entries = audit.entries_of_submit(request, caller, "batch.submitted", new.id)
        submitted = await server_state.engine.batches.store(new, members, entries)
        groups.forget_inputs(members.jobs)
        groups.forget_inputs(s.job for flow in members.flows for s in flow.steps)
    return await _receipt(request, caller, new, members, submitted)


async def _receipt(
    request: Request,
    caller: Caller,
    new: NewBatch,
    members: Members,
    submitted: Submitted,
) -> Response:
    told = {"Location": group_wire.batch_location(submitted.id)}
    if submitted.replayed:
        told["Idempotency-Replayed"] = "true"
    prefer = request.headers.get("prefer")
    if wait_of(prefer) is not None:
        # The batch is stored, even if the store cannot be read at the moment.
        with suppress(StoreUnavailable):
            batch = await _find(request, caller, submitted.id, prefer, told)
            if batch.state is BatchState.FINISHED:
                shown = await _shown(request, batch)
                if not submitted.replayed:
                    shown["added"] = group_wire.added(members)
                return wire.answer(shown, 200, told)
    told["Retry-After"] = "1"
    if not submitted.replayed:
        return wire.answer(group_wire.new_batch(new, members), 202, told)
    batch = await server_state_of(request).engine.batches.find(
        submitted.id, caller.owner
    )
    return wire.answer(await _shown(request, batch), 202, told)


@router.post(
    "/v1/batches/{batch_id}/members",
    operation_id="fill_batch",
    summary="Add to a batch",
    status_code=202,
    response_model=BatchView,
    responses={
        202: groups.ACCEPTED,
        **documented(BatchNotFound, *groups.REFUSALS),
    },
    openapi_extra={
        "requestBody": jobs.json_body("MembersRequest"),
        "parameters": [headers.IDEMPOTENCY_KEY],
    },
)
async def fill(request: Request, caller: Writer, batch_id: str) -> Response:
    """Add jobs and flows to an open batch, all or none, or seal it."""
    server_state = server_state_of(request)
    batches = server_state.engine.batches
    batch = await batches.find(batch_id, caller.owner)
    with server_state.bodies.place(request):
        members, seal = await _read_members(request, caller, batch)
        entries = audit.entries_of_submit(request, caller, "batch.filled", batch.id)
        submitted = await batches.fill(
            batch.id, caller.owner, members, seal=seal, entries=entries
        )
    told = {"Location": group_wire.batch_location(batch.id), "Retry-After": "1"}
    if submitted and all(answer.replayed for answer in submitted):
        told["Idempotency-Replayed"] = "true"
    try:
        shown = await _shown(request, await batches.find(batch.id, caller.owner))
    except StoreUnavailable:
        # They are stored, even if the store cannot be read at the moment.
        shown = group_wire.batch(batch)
    ids = [answer.id for answer in submitted]
    count = len(members.jobs)
    added = {"jobs": ids[:count], "flows": ids[count:]}
    return wire.answer({**shown, "added": added}, 202, told)


@router.get(
    "/v1/batches",
    operation_id="list_batches",
    summary="List batches, newest first",
    response_model=BatchPage,
    responses={
        200: {"description": "A page of batches.", "headers": headers.LINK},
        **documented(),
    },
)
async def listing(
    request: Request, caller: Reader, query: Annotated[BatchQuery, Query()]
) -> Response:
    """List the caller's batches."""
    batches = await server_state_of(request).engine.batches.list(
        GroupFilter(caller.visible, query.state, query.tag),
        before=wire.read_cursor(query.cursor),
        limit=query.limit + 1,
    )
    return wire.page(request, batches, limit=query.limit, write=group_wire.batch)


@router.get(
    "/v1/batches/{batch_id}",
    operation_id="get_batch",
    summary="Get a batch",
    response_model=BatchView,
    responses={
        200: {"description": "The batch.", "headers": groups.SHOWN},
        304: {"description": "Not modified since `If-None-Match`."},
        **documented(BatchNotFound),
    },
)
async def show(
    request: Request,
    caller: Reader,
    batch_id: str,
    prefer: Prefer = None,
    if_none_match: headers.IfNoneMatch = None,
) -> Response:
    """Return a batch with its counts; `Retry-After` until it is finished."""
    told: dict[str, str] = {}
    batch = await _find(request, caller, batch_id, prefer, told)
    if batch.state is BatchState.OPEN:
        told["Retry-After"] = "1"
    return groups.answer_version(await _shown(request, batch), if_none_match, told)


@router.post(
    "/v1/batches/{batch_id}/cancel",
    operation_id="cancel_batch",
    summary="Cancel a batch",
    response_model=BatchView,
    response_description="The batch is cancelled; none of its jobs runs.",
    responses=documented(BatchNotFound, writes=True),
)
async def cancel(request: Request, caller: Writer, batch_id: str) -> Response:
    """Cancel everything of a batch that has not ended, and seal the batch."""
    batches = server_state_of(request).engine.batches
    found = await batches.find(batch_id, caller.changeable)
    if found.state is BatchState.OPEN:
        await audit.record(request, caller, "batch.cancelled", batch_id)
    batch = await batches.cancel(batch_id, caller.changeable)
    return wire.answer(await _shown(request, batch))


@router.post(
    "/v1/batches/{batch_id}/retry",
    operation_id="retry_batch",
    summary="Retry the failed members of a batch",
    status_code=202,
    response_model=BatchView,
    responses={
        202: {
            "description": "`retried` says how many jobs are queued again.",
            "headers": headers.LOCATION,
        },
        **documented(BatchNotFound, BudgetExhausted, writes=True),
    },
)
async def retry(request: Request, caller: Retrier, batch_id: str) -> Response:
    """Queue every failed job and step again; the batch then finishes once more."""
    batches = server_state_of(request).engine.batches
    entry = audit.entry_of(request, caller, "batch.retried", batch_id)
    retried = await batches.retry(batch_id, caller.visible, [entry])
    shown = await _shown(request, await batches.find(batch_id, caller.visible))
    told = {"Location": group_wire.batch_location(batch_id), "Retry-After": "1"}
    return wire.answer({**shown, "retried": retried}, 202, told)


@router.get(
    "/v1/batches/{batch_id}/events",
    operation_id="watch_batch",
    summary="Watch a batch",
    response_class=Response,
    responses=until_end(BatchNotFound),
)
async def watch(
    request: Request,
    reader: StreamReader,
    batch_id: str,
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """
    Stream the events of a batch, including its progress, until it is finished.

    `id:` is the event's number among all events. Events of its members are not
    included.
    """
    server_state, caller = server_state_of(request), reader.following("batch", batch_id)
    batch = await server_state.engine.batches.find(batch_id, caller.visible)
    start = last_event_id if last_event_id is not None else after or 0
    last = await server_state.engine.batches.last(batch)
    if last is not None and start >= last:
        return ended()
    events = server_state.engine.batches.events(batch, after=start)
    return event_stream(events, number=lambda event: event.seq)


async def _read_batch(request: Request, caller: Caller) -> tuple[NewBatch, Members]:
    server_state = server_state_of(request)
    asked = await server_state.read(request, BatchRequest)
    check_shares(caller, _shares(asked))
    origin, key = headers.origin(request, caller), headers.key_of(request)
    work = partial(_prepared, server_state.engine.batches, asked, origin, key)
    return await body.checked(request, work, many=_size(asked) > groups.AT_ONCE)


async def _read_members(
    request: Request, caller: Caller, batch: Batch
) -> tuple[Members, bool]:
    server_state = server_state_of(request)
    asked = await server_state.read(request, MembersRequest)
    check_shares(caller, _shares(asked))
    origin, key = headers.origin(request, caller), headers.key_of(request)
    check_group(GroupOptions(idempotency_key=key))
    own_key = None if key is None else f"{batch.id} {key}"
    work = partial(_members, server_state.engine.batches, asked, origin, own_key)
    many = _size(asked) > groups.AT_ONCE
    return await body.checked(request, work, many=many), asked.seal


def _prepared(
    batches: Batches, asked: BatchRequest, origin: Mapping[str, Any], key: str | None
) -> tuple[NewBatch, Members]:
    members = _members(batches, asked, origin)
    completion = None
    if asked.completion is not None:
        completion = asked.completion.model_dump(exclude_unset=True)
    options = GroupOptions(
        tags=asked.tags,
        callback=told_to(asked.callback),
        idempotency_key=key,
        **origin,
    )
    new = batches.prepare(
        options,
        members,
        expected=asked.expected,
        sealed=asked.sealed,
        completion=completion,
        said=None if key is None else _said(asked),
    )
    return new, members


def _said(asked: BatchRequest) -> dict[str, Any]:
    """Return a request in the form in which repeats of it are compared."""
    told = asked.model_dump(mode="json")
    steps = [step for flow in told["flows"] for step in flow["steps"]]
    for job in (*told["jobs"], *steps):
        for name in ("completion", "metadata"):
            if job[name] is None:  # so that repeats of older requests still match
                del job[name]
    return told


def _members(
    batches: Batches,
    asked: BatchRequest | MembersRequest,
    origin: Mapping[str, Any],
    key: str | None = None,
) -> Members:
    if len(asked.jobs) + len(asked.flows) > MAX_MEMBERS:
        raise refused_field(
            "jobs", f"at most {MAX_MEMBERS:,} per call if there are flows"
        )
    return batches.members(
        (
            (job.capability, orjson.dumps(job.input), jobs.options_of(job, origin))
            for job in asked.jobs
        ),
        (
            (groups.flow_of(flow), groups.options_of(flow, origin))
            for flow in asked.flows
        ),
        key=key,
    )


def _shares(asked: BatchRequest | MembersRequest) -> list[str | None]:
    return [job.share for job in asked.jobs] + groups.shares_of(asked.flows)


def _size(asked: BatchRequest | MembersRequest) -> int:
    return len(asked.jobs) + sum(len(flow.steps) for flow in asked.flows)


async def _find(
    request: Request,
    caller: Caller,
    batch_id: str,
    prefer: str | None,
    told: dict[str, str],
) -> Batch:
    batches = server_state_of(request).engine.batches
    find_or_wait = FindOrWait(
        partial(batches.find, batch_id, caller.visible),
        lambda seconds: batches.wait(batch_id, caller.visible, timeout=seconds),
    )
    return await found(request, prefer, find_or_wait, told)


async def _shown(request: Request, batch: Batch) -> shapes.Batch:
    counts: Any = await server_state_of(request).engine.batches.counts(batch)
    return group_wire.batch(batch, counts)
