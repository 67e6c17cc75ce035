"""
The server's limits on connections, before any request reaches the application.

uvicorn limits neither the number nor the size of headers, and waits for ever for an
incomplete request. This protocol refuses such connections with a problem object and
closes them. It checks each chunk of bytes that arrives. A request that arrives in one
chunk, as nearly all do, costs a few comparisons and no timer.
"""

import asyncio
import resource
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, ClassVar, Final

import httptools
import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from backburner.domain.errors import BackburnerError
from backburner.engine.observability import telemetry
from backburner.http.access import new_request_id
from backburner.http.problems import MEDIA_TYPE as PROBLEM
from backburner.http.problems import (
    HeadersTooLarge,
    MalformedRequest,
    RequestTooSlow,
    TooManyConnections,
    problem,
)
from backburner.http.streams.socket import MAX_MESSAGE
from backburner.settings import Settings

KEPT_SECONDS: Final = 75
"""How long idle connections are kept: longer than clients' pools keep them."""
CLOSE_SECONDS: Final = 2
"""How long connections may take to end when the server stops, in seconds."""
SLOWEST: Final = 32 * 1024
"""The minimum speed: this many bytes of a body extend its time by a second."""
WRITE_SECONDS: Final = 60.0
"""How long a client may read nothing of a response, in seconds."""
LINGER_SECONDS: Final = 5.0
"""How long a refused client has to read the response, in seconds."""
UNREAD: Final = "ANSWER_NOT_READ"
"""The logged reason for dropping a client that does not read its response."""
OTHER_FILES: Final = 64
"""How many open files are reserved for other uses than connections."""
SOCKET_BYTES: Final = 4 * MAX_MESSAGE
"""The maximum message size over a WebSocket: characters may have four bytes."""


class Reading(Enum):
    """The part of a request that is awaited."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()


class LimitedProtocol(HttpToolsProtocol):
    """One connection with limits."""

    limits: ClassVar[Settings]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._reading = Reading.NOTHING
        self._received = 0
        """The number of received bytes of the awaited part."""
        self._chunk = 0
        """The size of the chunk that is being read."""
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._reason: BackburnerError | None = None
        """Why the connection is refused."""
        self._is_socket = False
        """Whether the connection was upgraded to a WebSocket."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or refuse it if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            limit = self.limits.connections
            self._refuse(
                TooManyConnections(f"the server already has {limit} connections")
            )
            return
        self._since = self.loop.time()
        self._await(self.limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._rest()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse a chunk, and check the limits."""
        self._chunk = len(data)
        if self._reading is Reading.NOTHING:
            self._received = self._chunk
        elif self._reading is Reading.HEAD:
            self._received += self._chunk
        super().data_received(data)
        if self._is_socket or self.transport.is_closing():
            return
        if self._reading is Reading.HEAD and self._received > self.limits.header_limit:
            self._refuse(self._too_large())
            return
        self._watch()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket, which has its own limits."""
        self._is_socket = True
        self._rest()
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        """Respond to a request that is malformed or over a limit."""
        self._refuse(self._reason or MalformedRequest(msg))

    def on_message_begin(self) -> None:
        """Start reading the headers."""
        self._reading = Reading.HEAD
        if self._timer is not None:
            self._rest()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Check the headers against the limits."""
        headers, limits = self.headers, self.limits
        # The headers are not larger than what was received: seldom count exactly.
        if len(headers) > limits.header_count or (
            self._received + self._chunk > limits.header_limit
            and _size(self.url, headers) > limits.header_limit
        ):
            self._stop(self._too_large())
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            self._stop(MalformedRequest("send one Host header"))
        super().on_headers_complete()
        self._reading = Reading.BODY
        self._received = 0
        if self._timer is not None:
            self._rest()

    def on_body(self, body: bytes) -> None:
        """Count the bytes that extend the time limit of a body."""
        self._received += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for nothing until the next request begins."""
        self._reading = Reading.NOTHING
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Start the time limit of a client that does not read."""
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(WRITE_SECONDS, self._drop)

    def resume_writing(self) -> None:
        """Cancel that time limit: the client reads again."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        super().resume_writing()

    def _watch(self) -> None:
        """Set a timer for the part that is awaited, if any."""
        if self._reading is Reading.NOTHING and (
            self._is_served or self.timeout_keep_alive_task is not None
        ):
            if self._timer is not None:
                self._rest()
        elif self._timer is None:
            self._since = self.loop.time()
            is_body = self._reading is Reading.BODY
            limits = self.limits
            self._await(limits.body_seconds if is_body else limits.header_seconds)

    @property
    def _is_served(self) -> bool:
        """Whether a response is being sent."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _await(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._judge)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _judge(self) -> None:
        """Refuse a request that did not arrive in time, unless the server was slow."""
        self._timer = None
        limits, is_body = self.limits, self._reading is Reading.BODY
        if self.flow.read_paused or (self._is_served and not is_body):
            self._await(limits.header_seconds)
            return
        if is_body:
            allowed = limits.body_seconds + self._received / SLOWEST
            left = self._since + allowed - self.loop.time()
            if left > 0:
                self._await(left)
                return
        what = "body" if is_body else "head"
        self._refuse(RequestTooSlow(f"the request's {what} did not arrive in time"))

    def _drop(self) -> None:
        """Drop a client that does not read its response."""
        telemetry.connections_refused.labels(UNREAD).inc()
        self.transport.abort()

    def _too_large(self) -> HeadersTooLarge:
        size, count = self.limits.header_limit, self.limits.header_count
        return HeadersTooLarge(
            f"a request may have at most {count} headers of {size} bytes together"
        )

    def _stop(self, reason: BackburnerError) -> None:
        """Stop the parser: uvicorn then responds as to a malformed request."""
        self._reason = reason
        raise httptools.HttpParserError(str(reason))

    def _refuse(self, reason: BackburnerError) -> None:
        """Respond with a problem object, unless a response has begun, and close."""
        self._rest()
        if self.transport.is_closing():
            return
        telemetry.connections_refused.labels(reason.code).inc()
        is_body = self._reading is Reading.BODY
        if not (self.cycle.response_started if is_body else self._is_served):
            self.transport.write(_answer(reason))
        if self._is_served:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)


def config(app: Any, settings: Settings) -> uvicorn.Config:
    """Return the uvicorn configuration of an application."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    affordable = min(settings.connections, max(1, files - OTHER_FILES))
    limits = settings.model_copy(update={"connections": affordable})
    protocol = type("Protocol", (LimitedProtocol,), {"limits": limits})
    return uvicorn.Config(
        app,
        http=protocol,
        ws="websockets-sansio",
        ws_max_size=SOCKET_BYTES,
        loop="none",
        lifespan="off",
        log_config=None,
        # At INFO it logs the URLs of WebSockets, which may contain a stream token.
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEPT_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )


def _size(url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> int:
    """Return the approximate size of the headers in bytes."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def _answer(reason: BackburnerError) -> bytes:
    told = problem(reason, request_id=new_request_id())
    body = orjson.dumps(told)
    head = [
        STATUS_LINE[told["status"]],
        f"content-type: {PROBLEM}\r\n".encode(),
        f"content-length: {len(body)}\r\n".encode(),
        f"x-request-id: {told['request_id']}\r\n".encode(),
        b"cache-control: no-store\r\n",
        b"connection: close\r\n",
    ]
    if "retry_after" in told:
        head.append(f"retry-after: {told['retry_after']}\r\n".encode())
    return b"".join((*head, b"\r\n", body))
