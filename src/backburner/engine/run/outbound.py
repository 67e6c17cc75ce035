"""
HTTP requests of handlers: `await ctx.http.get(url)`, `await ctx.http.post(url, …)`.

A request without a usable response raises an exception that says whether to try again.
A response is returned whatever its status; `raise_for_status` evaluates the status.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NoReturn, TypedDict, Unpack

import orjson

from backburner.domain.errors import PermanentError, Throttled, TransientError
from backburner.domain.lanes.rate_limit_headers import retry_after
from backburner.domain.webhooks.outbound import AllowedHosts
from backburner.ports.clock import Clock
from backburner.ports.egress import (
    Fetcher,
    Incoming,
    Method,
    Outgoing,
    Silence,
    Unusable,
)

NOT_ALLOWED: Final = "HTTP_NOT_ALLOWED"
TOO_LARGE: Final = "HTTP_TOO_LARGE"
REDIRECTS: Final = "HTTP_REDIRECTS"
REFUSED: Final = "HTTP_REFUSED"
TLS: Final = "HTTP_TLS"
TIMEOUT: Final = "HTTP_TIMEOUT"
CUT: Final = "HTTP_CUT"
STATUS: Final = "HTTP_STATUS"
INVALID: Final = "HTTP_INVALID"

AGENT: Final = "Backburner"
MAX_REDIRECTS: Final = 5
DEFAULT_LIMIT: Final = 1024 * 1024
"""The maximum size of a response body in bytes, unless a call sets `limit`."""

_SILENCES: Final[Mapping[Silence, tuple[str, str]]] = {
    Silence.REFUSED: (REFUSED, "the server cannot be reached or is not allowed"),
    Silence.UNTRUSTED: (TLS, "the server's certificate or TLS is not valid"),
    Silence.TIMED_OUT: (TIMEOUT, "the server's answer was not complete in time"),
    Silence.CUT: (CUT, "the connection ended before the server's answer"),
}
_LATER: Final = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
)
_PASSING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY})
_OURS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "host",
        "transfer-encoding",
        "upgrade",
    }
)
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE: Final = re.compile(r"[!-~]([ -~\t]{0,8190}[!-~])?|")


class HttpOptions(TypedDict, total=False):
    """Options of a request."""

    headers: Mapping[str, str]
    hosts: Iterable[str] | None
    """
    The only hosts that it may reach, redirects included: `host`, `host:port` or
    `*.domain`. Without it: all that the operator allows, by default public ones.
    """
    limit: int
    """
    The maximum size of the response body in bytes; 1 MiB by default, at most
    `BACKBURNER_HTTP_LIMIT`.
    """
    seconds: float
    """
    The time limit of the whole request; by default and at most
    `BACKBURNER_HTTP_SECONDS`.
    """


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The operator's limits for one request of a handler."""

    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    """As sent; compressed responses are neither requested nor decompressed."""
    url: str
    """The URL that sent it, after redirects."""
    retry_after: float | None = None
    """Seconds until the next attempt, if a 429 or 503 says so."""

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    def json(self) -> Any:
        """Return the body as JSON; an invalid one raises `TransientError`."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            message = "the server's answer is not valid JSON"
            raise TransientError(message, code=INVALID) from None

    def text(self) -> str:
        """Return the body as UTF-8; invalid bytes are replaced."""
        return self.body.decode(errors="replace")

    def raise_for_status(self) -> "HttpResponse":
        """
        Return this response if its status is 2xx, otherwise raise.

        429, and 503 with `Retry-After`: `Throttled`, which uses no attempt if the
        server gives a delay. Other 5xx, 408 and 425: `TransientError`. All others:
        `PermanentError`.
        """
        if self.is_success:
            return self
        message = f"the server answered {self.status}"
        if self.status == HTTPStatus.TOO_MANY_REQUESTS or self.retry_after is not None:
            raise Throttled(message, retry_after=self.retry_after, code=STATUS)
        if self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status in _PASSING:
            raise TransientError(message, code=STATUS)
        raise PermanentError(message, code=STATUS)


class Http:
    """Sends the HTTP requests of handlers within the operator's limits."""

    def __init__(self, fetcher: Fetcher, clock: Clock, limits: HttpLimits) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._limits = limits

    async def get(
        self,
        url: str,
        *,
        redirects: int = MAX_REDIRECTS,
        **options: Unpack[HttpOptions],
    ) -> HttpResponse:
        """
        Get a URL, following up to `redirects` redirects; with 0 it returns a redirect.

        Each redirect is checked like the first URL. Only the headers `Accept`,
        `Accept-Language` and `User-Agent` are sent to another origin.
        """
        return await self._send("GET", url, options, redirects=redirects)

    async def post(
        self,
        url: str,
        *,
        content: bytes = b"",
        json: Any = None,
        **options: Unpack[HttpOptions],
    ) -> HttpResponse:
        """
        Post bytes, or plain data as JSON. Redirects are returned, not followed.

        A job may run twice, and so may this request: send an id by which the server can
        recognise it, such as `ctx.job.id`.
        """
        return await self._send("POST", url, options, _body(content, json, options))

    async def patch(
        self,
        url: str,
        *,
        content: bytes = b"",
        json: Any = None,
        **options: Unpack[HttpOptions],
    ) -> HttpResponse:
        """Send a PATCH request; otherwise like `post`."""
        return await self._send("PATCH", url, options, _body(content, json, options))

    async def _send(
        self,
        method: Method,
        url: str,
        options: HttpOptions,
        content: bytes = b"",
        *,
        redirects: int = 0,
    ) -> HttpResponse:
        hosts = options.get("hosts")
        try:
            request = Outgoing(
                method,
                url,
                seconds=self._seconds(options.get("seconds")),
                limit=self._size(options.get("limit")),
                headers=_checked(options),
                body=content,
                hosts=None if hosts is None else AllowedHosts.read(hosts),
                redirects=redirects,
            )
        except ValueError as error:
            raise PermanentError(str(error), code=INVALID) from None
        return self._answer(await self._fetcher.fetch(request), request)

    def _seconds(self, asked: float | None) -> float:
        most = self._limits.seconds
        if asked is not None and not 0 < asked <= most:
            raise ValueError(
                f"seconds: over 0 and at most {most:g} (BACKBURNER_HTTP_SECONDS)"
            )
        return most if asked is None else asked

    def _size(self, asked: int | None) -> int:
        most = self._limits.bytes
        if asked is not None and not 0 <= asked <= most:
            raise ValueError(f"limit: must be 0 to {most} (BACKBURNER_HTTP_LIMIT)")
        return min(DEFAULT_LIMIT, most) if asked is None else asked

    def _answer(
        self, answer: Incoming | Silence | Unusable, request: Outgoing
    ) -> HttpResponse:
        if isinstance(answer, Silence):
            code, message = _SILENCES[answer]
            raise TransientError(message, code=code)
        if isinstance(answer, Unusable):
            _refuse(answer, request)
        wait = None
        if answer.status in _LATER:
            wait = retry_after(answer.headers, now=self._clock.now())
        seconds = None if wait is None else wait / 1000
        return HttpResponse(
            answer.status, answer.headers, answer.body, answer.url, seconds
        )


def _refuse(why: Unusable, request: Outgoing) -> NoReturn:
    match why:
        case Unusable.NOT_ALLOWED:
            code = NOT_ALLOWED
            message = (
                "the URL, or one that it redirects to, may not be called from here"
            )
        case Unusable.TOO_LARGE:
            code = TOO_LARGE
            message = f"the server's answer has more than {request.limit} bytes"
        case Unusable.REDIRECTS:
            code = REDIRECTS
            message = f"the server redirects more than {request.redirects} times"
    raise PermanentError(message, code=code)


def _body(content: bytes, json: Any, options: HttpOptions) -> bytes:
    """Return the bytes to send; for JSON, also set the content type."""
    if json is None:
        return content
    given = options.get("headers", {})
    options["headers"] = {"Content-Type": "application/json", **given}
    return orjson.dumps(json)


def _checked(options: HttpOptions) -> Mapping[str, str]:
    given = options.get("headers", {})
    for name, value in given.items():
        if name.lower() in _OURS:
            raise ValueError(f"headers: {name} is set for you")
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError("headers: names and values must be plain ASCII text")
    return {"user-agent": AGENT, **{name.lower(): v for name, v in given.items()}}
