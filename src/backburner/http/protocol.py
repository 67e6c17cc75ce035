"""
The server's limits on connections, before any request reaches the application.

uvicorn bounds neither the number nor the size of headers, and waits for ever for a
request that does not go on. This protocol refuses such connections with a problem and
closes them. It decides per chunk of bytes that arrives; a request that arrives whole,
as nearly all do, costs a few comparisons and no timer.
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
"""For how long an idle connection is kept: longer than clients' pools keep theirs."""
CLOSE_SECONDS: Final = 2
"""How long a connection may take to end when the server stops."""
SLOWEST: Final = 32 * 1024
"""A body of so many bytes has another second to arrive."""
WRITE_SECONDS: Final = 60.0
"""How long a client may take nothing of an answer."""
LINGER_SECONDS: Final = 5.0
"""How long a client that was refused has to take the answer."""
UNREAD: Final = "ANSWER_NOT_READ"
"""The reason why a client is dropped that could not be told any."""
OTHER_FILES: Final = 64
"""How many open files are left for other things than connections."""
SOCKET_BYTES: Final = 4 * MAX_MESSAGE
"""The largest message over a WebSocket: its characters may have four bytes each."""


class Reading(Enum):
    """What of a request is awaited."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()


class LimitedProtocol(HttpToolsProtocol):
    """One connection, within limits."""

    limits: ClassVar[Settings]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._reading = Reading.NOTHING
        self._received = 0
        """Bytes that came of what is awaited."""
        self._chunk = 0
        """Bytes of the chunk that is being read."""
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._reason: BackburnerError | None = None
        """Why the connection is refused."""
        self._is_socket = False
        """Whether a WebSocket has the connection now."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or turn it away if there are too many."""
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
        """Forget the timers."""
        self._rest()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, and see how far the request is."""
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
        """Leave the connection to the WebSocket, which has limits of its own."""
        self._is_socket = True
        self._rest()
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser refuses, or what we refuse within it."""
        self._refuse(self._reason or MalformedRequest(msg))

    def on_message_begin(self) -> None:
        """Begin to read a head."""
        self._reading = Reading.HEAD
        if self._timer is not None:
            self._rest()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """See whether the head is one that may be answered."""
        headers, limits = self.headers, self.limits
        # No head is larger than what came; its exact size is seldom needed.
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
        """Count what gives a body more time."""
        self._received += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Await nothing until the next request begins."""
        self._reading = Reading.NOTHING
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Wait for a client that does not read, but not for ever."""
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(WRITE_SECONDS, self._drop)

    def resume_writing(self) -> None:
        """Go on: the client reads."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        super().resume_writing()

    def _watch(self) -> None:
        """Set a timer for what is awaited now, if anything is."""
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
        """Whether an answer is under way."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _await(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._judge)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _judge(self) -> None:
        """Refuse a request that did not arrive in time, unless we are why."""
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
        """Drop a client that does not read its answer."""
        telemetry.connections_refused.labels(UNREAD).inc()
        self.transport.abort()

    def _too_large(self) -> HeadersTooLarge:
        size, count = self.limits.header_limit, self.limits.header_count
        return HeadersTooLarge(
            f"a request may have at most {count} headers of {size} bytes together"
        )

    def _stop(self, reason: BackburnerError) -> None:
        """Leave the parser: uvicorn then asks for the answer to what is malformed."""
        self._reason = reason
        raise httptools.HttpParserError(str(reason))

    def _refuse(self, reason: BackburnerError) -> None:
        """Answer with a problem, unless something was answered, and close."""
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
    """Return how uvicorn serves an application within a server's limits."""
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
        # At INFO it writes the URL of each WebSocket, which may hold a stream token.
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEPT_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )


def _size(url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> int:
    """Return how many bytes a head has, but for the rest of its first line."""
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
