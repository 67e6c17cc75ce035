"""
Middleware: request id, one log line per request, unexpected errors.

The log contains the route's template, never the path or the query, which are user data.
"""

import itertools
import re
import secrets
import time
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars, clear_contextvars

from backburner.http import limits
from backburner.http.cors import Cors, Headers, allow
from backburner.http.problems import unexpected
from backburner.ports.log import log

_WELL_FORMED = re.compile(rb"[A-Za-z0-9_-]{1,64}")
_PROCESS = secrets.token_hex(6)
_REQUESTS = itertools.count(1)
CLIENT_LEFT: Final = 499
SWITCHED: Final = 101
INTERNAL_ERROR: Final = 1011
REPLACED: Final = "\ufffd"
QUOTED: Final = b"%EF%BF%BD"
API: Final = "/v1/"
UNKEPT: Final = (b"cache-control", b"no-store")
VARIES: Final = [(b"vary", b"Authorization, Cookie, X-Tenant-Id, X-User-Id")]
"""The request headers that say whose data an answer has."""


class Access:
    """Pure ASGI middleware, without extra tasks, buffers or copies of the body."""

    def __init__(self, app: ASGIApp, cors: Cors | None = None) -> None:
        self._app = app
        self._cors = cors or Cors(())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, and log it when it has ended."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        visit = _Visit(scope, send, self._cors.headers_for(scope))
        if scope.get("method") == "HEAD":
            # Handled like GET; the server omits the body.
            scope = {**scope, "method": "GET"}
            visit.follow(scope)
        clear_contextvars()
        bind_contextvars(request_id=visit.request_id)
        try:
            if self._cors.is_preflight(scope):
                await allow(scope, visit.send)
            else:
                _keep_out_nul(scope)
                await self._app(scope, receive, visit.send)
        except ClientDisconnect:
            visit.status = CLIENT_LEFT
        except Exception as error:  # noqa: BLE001 - its message may contain user data
            log.error("request failed", error_type=type(error).__name__)
            await visit.excuse(receive)
        visit.tell()


def _keep_out_nul(scope: Scope) -> None:
    """
    Replace NUL characters in the path and query: not every database accepts them.

    No stored text contains NUL, so such a request finds nothing in either case.
    """
    scope["path"] = scope["path"].replace("\0", REPLACED)
    scope["query_string"] = scope["query_string"].replace(b"%00", QUOTED)


class _Visit:
    """The state of one request."""

    __slots__ = (
        "_begun",
        "_is_head",
        "_is_over",
        "_method",
        "_more",
        "_scope",
        "_send",
        "request_id",
        "status",
    )

    def __init__(self, scope: Scope, send: Send, more: Headers) -> None:
        self._scope = scope
        self._send = send
        self._more = more
        self._begun = time.perf_counter()
        self.request_id = _request_id(scope)
        self.status = 0
        self._method = scope.get("method", "WS")
        self._is_head = self._is_over = False
        scope.setdefault("state", {})["request_id"] = self.request_id

    def follow(self, scope: Scope) -> None:
        """Continue as a GET whose body is discarded."""
        self._scope = scope
        self._is_head = True

    async def send(self, message: Message) -> None:
        """Send a message, with the request id among the headers."""
        if message["type"] in _STARTS:
            self.status = message.get("status", SWITCHED)
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", self.request_id.encode()),
                (b"x-content-type-options", b"nosniff"),
                *limits.headers_of(self._scope),
                *_caching(self._scope, message.get("headers", ())),
                *self._more,
            ]
        elif self._is_head:
            # Repeated messages are dropped: the reader has left, and its stream ends.
            if self._is_over:
                return
            self._is_over = True
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def excuse(self, receive: Receive) -> None:
        """Respond to an unexpected error, unless a response has begun."""
        if self._scope["type"] == "websocket":
            await self._send({"type": "websocket.close", "code": INTERNAL_ERROR})
        elif self.status == 0:
            await unexpected(self.request_id)(self._scope, receive, self.send)

    def tell(self) -> None:
        """Write the log line of the request."""
        route: Any = self._scope.get("route")
        log.info(
            "request",
            method=self._method,
            route=getattr(route, "path", "none"),
            status=self.status,
            duration_ms=round((time.perf_counter() - self._begun) * 1000, 2),
        )


def _caching(scope: Scope, headers: Headers) -> Headers:
    """
    Return headers that keep a JSON answer of the API out of caches by default.

    Without them a shared cache may store it: a cookie is no `Authorization`. Answers
    that name their own rule keep it.
    """
    if not scope["path"].startswith(API) or scope["type"] != "http":
        return []
    named = dict(headers)
    if not named.get(b"content-type", b"").endswith(b"json"):
        return []
    return VARIES if b"cache-control" in named else [*VARIES, UNKEPT]


_STARTS = frozenset(
    {"http.response.start", "websocket.accept", "websocket.http.response.start"}
)


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            if _WELL_FORMED.fullmatch(value):
                return str(value.decode())
            break
    return new_request_id()


def new_request_id() -> str:
    """Return an id for a request that did not bring one."""
    return f"{_PROCESS}-{next(_REQUESTS):x}"
