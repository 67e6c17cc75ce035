"""
Streams events as they happen, over SSE.

A reader may join late, leave and return: it names the last event that it has seen, and
gets everything after it, once and in order.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import (
    BackburnerError,
    BatchNotFound,
    FlowNotFound,
    JobNotFound,
    StoreUnavailable,
)
from backburner.domain.events.event import Event
from backburner.engine.engine import Engine
from backburner.engine.tail import SharedPage
from backburner.http import wire
from backburner.http.auth import Caller
from backburner.http.problems import TooManyStreams, documented
from backburner.http.schemas.jobs import MAX_CURSOR, EventQuery
from backburner.http.state import server_state_of
from backburner.http.streams.access import StreamAccess, StreamReader
from backburner.http.streams.sse import MEDIA_TYPE, ServerEvent, ServerEvents
from backburner.ports.store.events import Topic

router = APIRouter(tags=["events"])

CHUNK: Final = 65_536
"""Events are sent together up to this size, in bytes."""

After = Annotated[
    int | None,
    Query(ge=0, le=MAX_CURSOR, description="Last event that the reader has seen."),
]
LastEventId = Annotated[
    int | None,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=MAX_CURSOR,
        description="Overrides `after`; browsers send it when they reconnect.",
    ),
]

STREAM = {
    "description": "`id`, `event` and `data` (an `EventView`) of each event.",
    "content": {
        MEDIA_TYPE: {
            "schema": {},
            "example": 'id: 1\nevent: job.queued\ndata: {"seq": 7, "n": 1, …}\n\n',
        }
    },
}


def until_end(missing: type[BackburnerError]) -> dict[int | str, dict[str, Any]]:
    """Describe for OpenAPI a stream that closes at the end of what it is about."""
    return {
        200: STREAM,
        204: {"description": "It has ended, and `after` is its last event: stop."},
        **documented(missing, StoreUnavailable, TooManyStreams),
    }


def event_stream(
    events: AsyncGenerator[Event, None],
    *,
    number: Callable[[Event], int],
    start: int | None = None,
) -> ServerEvents:
    """Respond with events of the log, each with the number to resume after it."""
    return ServerEvents(_written(events, number), start=start)


async def _written(
    following: AsyncGenerator[Event, None], number: Callable[[Event], int]
) -> AsyncGenerator[ServerEvent, None]:
    async with aclosing(following) as events:
        async for event in events:
            yield ServerEvent(wire.event(event), event.type, number(event))


@router.get(
    "/v1/jobs/{job_id}/events",
    operation_id="watch_job",
    summary="Watch a job",
    response_class=Response,
    responses=until_end(JobNotFound),
)
async def watch_job(
    request: Request,
    reader: StreamReader,
    job_id: str,
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """
    Stream a job's events from the first one, until it has ended.

    `id:` is the event's number within the job. A browser that reconnects after the end
    gets a 204, which tells it to stop.
    """
    server_state = server_state_of(request)
    caller = reader.following("job", job_id)
    job = await server_state.engine.find(job_id, caller.visible)
    start = last_event_id if last_event_id is not None else after or 0
    if job.state.is_final and start >= job.events:
        return ended()
    events = server_state.engine.events(job, after=start)
    return event_stream(events, number=lambda event: event.n)


@router.get(
    "/v1/events",
    operation_id="watch_all",
    summary="Watch everything",
    response_class=Response,
    responses={
        200: STREAM,
        **documented(FlowNotFound, BatchNotFound, StoreUnavailable, TooManyStreams),
    },
)
async def watch_all(
    request: Request,
    reader: StreamReader,
    query: Annotated[EventQuery, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """
    Stream the events of all jobs, flows and batches of the caller, without end.

    Events that applications publish to the caller or to its whole tenant are included;
    `topic` selects those of one topic. `id:` is the event's number among all events.
    Without a cursor, the stream starts now; `after=0` starts with the oldest stored
    event. Callers with `queues:read` get the events of queues as well, unless they
    select one subject.
    """
    server_state = server_state_of(request)
    start = last_event_id if last_event_id is not None else query.after
    if start is None:
        start = await server_state.engine.store.latest()
    caller, wanted = await _topic(server_state.engine, reader, query)
    pages = server_state.engine.pages(caller.visible, after=start, topic=wanted)
    return ServerEvents(_chunks(pages), start=start)


async def _chunks(
    following: AsyncGenerator[SharedPage, None],
) -> AsyncGenerator[bytes, None]:
    async with aclosing(following) as pages:
        async for page in pages:
            for chunk in page.made(_in_chunks):
                yield chunk


def _in_chunks(events: Sequence[Event]) -> list[bytes]:
    """Write events in the SSE format, several per chunk if they are small."""
    chunks: list[bytes] = []
    pending: list[bytes] = []
    size = 0
    for event in events:
        written = ServerEvent(wire.event(event), event.type, event.seq).written()
        if pending and size + len(written) > CHUNK:
            chunks.append(b"".join(pending))
            pending, size = [], 0
        pending.append(written)
        size += len(written)
    return [*chunks, b"".join(pending)] if pending else chunks


async def _topic(
    engine: Engine, reader: StreamAccess, asked: EventQuery
) -> tuple[Caller, Topic]:
    """Return the caller and the selected events."""
    if asked.flow is not None:
        caller = reader.following("flow", asked.flow)
        flow = await engine.flows.find(asked.flow, caller.visible)
        return caller, Topic(flow=flow.seq)
    if asked.batch is not None:
        caller = reader.following("batch", asked.batch)
        batch = await engine.batches.find(asked.batch, caller.visible)
        return caller, Topic(batch=batch.seq)
    if asked.topic is not None:
        return reader.following("topic", asked.topic), Topic(name=asked.topic)
    caller = reader.everything()
    return caller, all_of(caller) if asked.tag is None else Topic(tag=asked.tag)


def all_of(caller: Caller) -> Topic:
    """Return the selection of all events, including those of queues if allowed."""
    return Topic(queues="queues:read" in caller.scopes)


def ended() -> Response:
    """Respond to a reader that has seen the last event: do not reconnect."""
    return Response(status_code=204, media_type=MEDIA_TYPE)
