"""
Events as they happen, over SSE.

A reader may join late, leave and come back: it names the last event it saw, and gets
everything after that once and in order.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backburner.domain.errors import (
    BatchNotFound,
    FlowNotFound,
    InvalidInput,
    JobNotFound,
    StoreUnavailable,
)
from backburner.domain.event import Event
from backburner.engine.engine import Engine
from backburner.http import wire
from backburner.http.auth import Caller, require
from backburner.http.door import Streams, door_of
from backburner.http.problems import TooManyStreams, documented
from backburner.http.schemas import MAX_CURSOR, EventQuery
from backburner.ports.store import Topic

router = APIRouter(tags=["events"])

HEARTBEAT_SECONDS = 15.0
SEND_SECONDS = 30.0
"""A reader that takes nothing for so long is dropped; it may come back."""
RECONNECT_MS = 1_000
STILL_HERE = b": still here\n\n"

MEDIA_TYPE = "text/event-stream"

Reader = Annotated[Caller, require("jobs:read")]
After = Annotated[
    int | None,
    Query(ge=0, le=MAX_CURSOR, description="The last event that was seen."),
]
LastEventId = Annotated[
    int | None,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=MAX_CURSOR,
        description="As `after`, and before it: browsers send it when they reconnect.",
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


class EventStream(Response):
    """Sends events until they end, the reader leaves or the server stops."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        streams: Streams,
        events: AsyncGenerator[Event, None],
        *,
        number: Callable[[Event], int],
        start: int | None = None,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store"})
        del self.headers["Content-Length"]
        self._streams = streams
        self._events = events
        self._number = number
        self._opening = f"retry: {RECONNECT_MS}\n".encode()
        if start is not None:
            self._opening += f"id: {start}\n".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's shape
        """Hold a place among the streams for as long as this one lasts."""
        with self._streams.place():
            headers = self.raw_headers
            await send(
                {"type": "http.response.start", "status": 200, "headers": headers}
            )
            await _send(send, self._opening + b"\n")
            try:
                await self._streams.run(self._tell(send), receive, self._beat(send))
            except TimeoutError:
                return  # the answer stays unfinished, so the connection is closed
        await send({"type": "http.response.body", "body": b""})

    async def _tell(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                await _send(send, self._written(event))

    async def _beat(self, send: Send) -> None:
        """Show through proxies that the stream is alive."""
        while not self._streams.stopping.is_set():
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._streams.stopping.wait()
            except TimeoutError:
                await _send(send, STILL_HERE)

    def _written(self, event: Event) -> bytes:
        data = orjson.dumps(wire.event(event))
        head = f"id: {self._number(event)}\nevent: {event.type}\ndata: "
        return b"".join((head.encode(), data, b"\n\n"))


@router.get(
    "/v1/jobs/{job_id}/events",
    operation_id="watch_job",
    summary="Watch a job",
    response_class=Response,
    responses={
        200: STREAM,
        204: {"description": "It ended, and `after` is its last: do not come back."},
        **documented(JobNotFound, InvalidInput, StoreUnavailable, TooManyStreams),
    },
)
async def watch_job(
    request: Request,
    caller: Reader,
    job_id: str,
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """
    Stream a job's events from the first, and close when it has ended.

    `id:` is the event's number within the job. After the end a browser that
    reconnects is told by 204 to stop.
    """
    door = door_of(request)
    job = await door.engine.find(job_id, caller.owner)
    start = last_event_id if last_event_id is not None else after or 0
    if job.state.is_final and start >= job.events:
        return ended()
    events = door.engine.events(job, after=start)
    return EventStream(door.streams, events, number=lambda event: event.n)


@router.get(
    "/v1/events",
    operation_id="watch_all",
    summary="Watch everything",
    response_class=Response,
    responses={
        200: STREAM,
        **documented(
            InvalidInput, FlowNotFound, BatchNotFound, StoreUnavailable, TooManyStreams
        ),
    },
)
async def watch_all(
    request: Request,
    caller: Reader,
    query: Annotated[EventQuery, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """
    Stream the events of all of the caller's jobs, flows and batches, for ever.

    `id:` is the event's number among all events. Without a cursor it begins now;
    `after=0` begins with the oldest event that is kept. Whoever may read queues is
    told of them, too, unless it asks for one thing only.
    """
    door = door_of(request)
    start = last_event_id if last_event_id is not None else query.after
    if start is None:
        start = await door.engine.store.latest()
    wanted = await _topic(door.engine, caller, query)
    events = door.engine.stream(caller.owner, after=start, topic=wanted)
    return EventStream(
        door.streams, events, number=lambda event: event.seq, start=start
    )


async def _topic(engine: Engine, caller: Caller, asked: EventQuery) -> Topic:
    """Return what of the caller's events is asked for."""
    if asked.flow is not None:
        return Topic(flow=(await engine.flows.find(asked.flow, caller.owner)).seq)
    if asked.batch is not None:
        return Topic(batch=(await engine.batches.find(asked.batch, caller.owner)).seq)
    if asked.tag is not None:
        return Topic(tag=asked.tag)
    return all_of(caller)


def all_of(caller: Caller) -> Topic:
    """Return everything: with the events of queues, which belong to nobody."""
    return Topic(queues="queues:read" in caller.scopes)


def ended() -> Response:
    """Tell a reader that has seen the end to stay away."""
    return Response(status_code=204, media_type=MEDIA_TYPE)


async def _send(send: Send, chunk: bytes) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
