"""
Server-sent events: responses that stay open within the server's limits.

Every stream is counted in `Streams`, sends heartbeats, and ends when its reader leaves,
its key is no longer valid, or the server stops.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backburner.http.auth import key_of, until_of

MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
SEND_SECONDS = 30.0
"""A reader that accepts nothing for this time is dropped; it may reconnect."""
RECONNECT_MS = 1_000
STILL_HERE: Final = b": still here\n\n"


class ServerEvent(NamedTuple):
    """An event to send."""

    data: Any
    """Any value, sent as JSON."""
    type: str = "message"
    """The event type for which browsers call `addEventListener`."""
    id: str | int | None = None
    """What a browser sends as `Last-Event-ID` when it reconnects."""

    def written(self) -> bytes:
        """Return the event in the SSE format."""
        head = "" if self.id is None else f"id: {_line(self.id)}\n"
        head += f"event: {_line(self.type)}\ndata: "
        return b"".join((head.encode(), orjson.dumps(self.data), b"\n\n"))


class ServerEvents(Response):
    """
    Sends events until they end, the reader leaves or the server stops.

    It also ends when the reader's key is no longer valid. Bytes are events that are
    already in the SSE format. `start` is the cursor with
    which a reader reconnects if it has not received any event yet.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self,
        events: AsyncGenerator[ServerEvent | bytes, None],
        *,
        start: str | int | None = None,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store"})
        del self.headers["Content-Length"]
        self._events = events
        self._opening = f"retry: {RECONNECT_MS}\n".encode()
        if start is not None:
            self._opening += f"id: {_line(start)}\n".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, counted among the open streams."""
        key = key_of(scope)
        server_state = scope["app"].state.server_state
        streams = server_state.streams
        with streams.place(key):
            headers = self.raw_headers
            await send(
                {"type": "http.response.start", "status": 200, "headers": headers}
            )
            await _send(send, self._opening + b"\n")
            try:
                await streams.run(
                    self._tell(send),
                    receive,
                    _beat(send, streams.stopping),
                    server_state.revoked(key, until_of(scope)),
                )
            except TimeoutError:
                return  # the answer stays unfinished, so the connection is closed
        await send({"type": "http.response.body", "body": b""})

    async def _tell(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                chunk = event if isinstance(event, bytes) else event.written()
                await _send(send, chunk)


async def _beat(send: Send, stopping: asyncio.Event) -> None:
    """Send comments, so that proxies and readers know that the stream is alive."""
    while not stopping.is_set():
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await stopping.wait()
        except TimeoutError:
            await _send(send, STILL_HERE)


async def _send(send: Send, chunk: bytes) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": chunk, "more_body": True})


def _line(value: str | int) -> str:
    """Return the text of a field; refuse line breaks, which would start another one."""
    text = str(value)
    if not text.isprintable():
        raise ValueError("the id and type of an event must be printable, in one line")
    return text
