"""
Errors as problem objects (RFC 9457); the only table of status codes.

A request's values are never sent back: a problem names the rule, not the value.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar, Final, NamedTuple

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from backburner.domain.costs.budget import amount
from backburner.domain.errors import (
    BackburnerError,
    BatchNotFound,
    BlobMismatch,
    BlobMissing,
    BlobTooLarge,
    BudgetExhausted,
    CallerError,
    EndpointNotFound,
    FieldError,
    FlowNotFound,
    HoldExhausted,
    IdempotencyConflict,
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    KeyNotFound,
    PromptRefused,
    QueueNotFound,
    ScheduleNotFound,
    SignalConflict,
    SignalTooLarge,
    StoreFull,
    StoreUnavailable,
    TooManyWaiting,
    TransactionTooLong,
    UnknownCapability,
    UploadTooSlow,
    WorkerNotFound,
)
from backburner.domain.jobs.job import Job
from backburner.engine.maintenance.erasure import StillWorking

MEDIA_TYPE: Final = "application/problem+json"
MAX_FIELD_ERRORS: Final = 20


class MalformedBody(CallerError):
    """The body is not JSON, or contains values that cannot be stored."""

    code = "MALFORMED_BODY"


class MalformedRequest(CallerError):
    """The request is not HTTP, or its headers contradict each other."""

    code = "MALFORMED_REQUEST"


class HeadersTooLarge(CallerError):
    """The request's headers exceed the limits on number or size."""

    code = "HEADERS_TOO_LARGE"


class RequestTooSlow(CallerError):
    """The request did not arrive within the time limit."""

    code = "REQUEST_TOO_SLOW"
    retryable = True


class TooManyConnections(BackburnerError):
    """The server's limit of connections is reached."""

    code: ClassVar[str] = "TOO_MANY_CONNECTIONS"
    retryable = True


class Unauthorized(CallerError):
    """The API key is missing or not valid; the response does not say which."""

    code = "UNAUTHORIZED"


class Forbidden(CallerError):
    """The caller may not do this."""

    code = "FORBIDDEN"


class ForeignOrigin(CallerError):
    """A page of another origin sent the request, or it used a foreign host name."""

    code = "FOREIGN_ORIGIN"


class CsrfRefused(CallerError):
    """A request with a session cookie lacks the CSRF token."""

    code = "CSRF_REFUSED"


class NoResult(CallerError):
    """The job ended without a result."""

    code = "NO_RESULT"

    def __init__(self, job: Job) -> None:
        super().__init__(f"the job is {job.state}: it has no result")
        self.job = job


class BudgetNotFound(CallerError):
    """The budget does not exist."""

    code = "BUDGET_NOT_FOUND"


class BodyTooLarge(CallerError):
    """The body exceeds the size limit."""

    code = "BODY_TOO_LARGE"


class UnsupportedMediaType(CallerError):
    """The body is not declared as JSON."""

    code = "UNSUPPORTED_MEDIA_TYPE"


class UnsupportedEncoding(CallerError):
    """The body is compressed."""

    code = "UNSUPPORTED_CONTENT_ENCODING"


class LinkRefused(CallerError):
    """The signed URL is invalid or has expired; the response does not say which."""

    code = "LINK_REFUSED"


class RangeNotSatisfiable(CallerError):
    """The requested range is outside the content."""

    code = "RANGE_NOT_SATISFIABLE"

    def __init__(self, size: int) -> None:
        super().__init__(f"the content has {size} bytes")
        self.size = size


class TooManyBodies(BackburnerError):
    """The process's limit of concurrent large bodies is reached."""

    code: ClassVar[str] = "TOO_MANY_BODIES"
    retryable = True


class TooManyStreams(BackburnerError):
    """The process's limit of open streams is reached."""

    code: ClassVar[str] = "TOO_MANY_STREAMS"
    retryable = True


class TooManyRequests(BackburnerError):
    """The rate limit of the key is exceeded."""

    code: ClassVar[str] = "TOO_MANY_REQUESTS"
    retryable = True

    def __init__(self, seconds: int = 1) -> None:
        super().__init__(
            f"the rate limit of the key is reached: try again in {seconds} s"
        )
        self.seconds = seconds


class ApplicationUnavailable(BackburnerError):
    """An application is not served because its migration failed."""

    code: ClassVar[str] = "APPLICATION_UNAVAILABLE"
    retryable = True


class Refusal(BackburnerError):
    """An error by an application's own contract: status, code and message."""

    def __init__(  # noqa: PLR0913 - the parts of a problem, each by its name
        self,
        status: int,
        code: str,
        message: str,
        *,
        title: str | None = None,
        retry_after: int | None = None,
        fields: Sequence[FieldError] = (),
        members: Mapping[str, Any] | None = None,
    ) -> None:
        """`members` are additional members of the problem object."""
        super().__init__(message)
        self.code = code  # type: ignore[misc]
        self.retryable = status in _PASSING  # type: ignore[misc]
        self.row = Row(HTTPStatus(status), title or HTTPStatus(status).phrase)
        self.retry_after = retry_after
        self.fields = tuple(fields)
        self.members = dict(members or {})


class Row(NamedTuple):
    """Status, title and retry time of one kind of error."""

    status: HTTPStatus
    title: str
    retry_after: int | None = None


TABLE: Final[Mapping[type[BackburnerError], Row]] = {
    MalformedBody: Row(HTTPStatus.BAD_REQUEST, "The body cannot be read"),
    MalformedRequest: Row(HTTPStatus.BAD_REQUEST, "The request is malformed"),
    RequestTooSlow: Row(HTTPStatus.REQUEST_TIMEOUT, "The request arrived too slowly"),
    HeadersTooLarge: Row(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are too large"
    ),
    TooManyConnections: Row(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections", 5),
    PromptRefused: Row(HTTPStatus.BAD_REQUEST, "The input looks like an injection"),
    Unauthorized: Row(HTTPStatus.UNAUTHORIZED, "An API key is required"),
    Forbidden: Row(HTTPStatus.FORBIDDEN, "Not allowed"),
    ForeignOrigin: Row(HTTPStatus.FORBIDDEN, "Sent from another origin"),
    CsrfRefused: Row(HTTPStatus.FORBIDDEN, "The CSRF check failed"),
    KeyNotFound: Row(HTTPStatus.NOT_FOUND, "No such key"),
    QueueNotFound: Row(HTTPStatus.NOT_FOUND, "No such queue"),
    ScheduleNotFound: Row(HTTPStatus.NOT_FOUND, "No such schedule"),
    WorkerNotFound: Row(HTTPStatus.NOT_FOUND, "No such worker"),
    BudgetNotFound: Row(HTTPStatus.NOT_FOUND, "No such budget"),
    EndpointNotFound: Row(HTTPStatus.NOT_FOUND, "No such endpoint"),
    LinkRefused: Row(HTTPStatus.FORBIDDEN, "The link is not valid"),
    JobNotFound: Row(HTTPStatus.NOT_FOUND, "No such job"),
    FlowNotFound: Row(HTTPStatus.NOT_FOUND, "No such flow"),
    BatchNotFound: Row(HTTPStatus.NOT_FOUND, "No such batch"),
    BlobMissing: Row(HTTPStatus.NOT_FOUND, "No such content"),
    RangeNotSatisfiable: Row(
        HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "No such part of the content"
    ),
    BlobTooLarge: Row(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The content is too large"),
    BlobMismatch: Row(
        HTTPStatus.UNPROCESSABLE_ENTITY, "The content is not what was announced"
    ),
    UploadTooSlow: Row(HTTPStatus.REQUEST_TIMEOUT, "The content arrived too slowly"),
    UnknownCapability: Row(HTTPStatus.NOT_FOUND, "No such capability"),
    IllegalTransition: Row(HTTPStatus.CONFLICT, "The state does not allow this"),
    SignalConflict: Row(HTTPStatus.CONFLICT, "The signal cannot be taken"),
    SignalTooLarge: Row(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The signal is too large"),
    StillWorking: Row(HTTPStatus.CONFLICT, "The user has unfinished work"),
    NoResult: Row(HTTPStatus.CONFLICT, "The job ended without a result"),
    BodyTooLarge: Row(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large"),
    UnsupportedMediaType: Row(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body must be JSON"
    ),
    UnsupportedEncoding: Row(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body must not be compressed"
    ),
    InvalidInput: Row(HTTPStatus.UNPROCESSABLE_ENTITY, "The request is not valid"),
    IdempotencyConflict: Row(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "The idempotency key was used for another request",
    ),
    TooManyRequests: Row(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests"),
    BudgetExhausted: Row(HTTPStatus.TOO_MANY_REQUESTS, "The budget is used up"),
    HoldExhausted: Row(HTTPStatus.TOO_MANY_REQUESTS, "The job's hold is used up"),
    TooManyWaiting: Row(HTTPStatus.TOO_MANY_REQUESTS, "Too many jobs are waiting", 5),
    TooManyBodies: Row(HTTPStatus.SERVICE_UNAVAILABLE, "Too many large bodies", 1),
    TooManyStreams: Row(HTTPStatus.SERVICE_UNAVAILABLE, "Too many streams", 5),
    ApplicationUnavailable: Row(
        HTTPStatus.SERVICE_UNAVAILABLE, "An application is not available", 30
    ),
    TransactionTooLong: Row(
        HTTPStatus.SERVICE_UNAVAILABLE, "The transaction took too long", 2
    ),
    StoreUnavailable: Row(
        HTTPStatus.SERVICE_UNAVAILABLE, "The store is unavailable", 2
    ),
    StoreFull: Row(HTTPStatus.INSUFFICIENT_STORAGE, "The store is full", 30),
    BackburnerError: Row(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error"),
}


_PASSING: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


def budget_headers(limit: int, per: int, left: int, seconds: int) -> dict[str, str]:
    """Return headers with the limit, its window and what is left of a budget."""
    return {
        "RateLimit-Policy": f'"budget";q={limit};w={per}',
        "RateLimit": f'"budget";r={left};t={seconds}',
    }


async def answer_error(request: Request, error: Exception) -> Response:
    """Respond to one of our errors with its problem object."""
    assert isinstance(error, BackburnerError)  # noqa: S101 - how it is registered
    told = problem(error, request_id=request_id_of(request))
    answered = answer(told, told.get("retry_after"))
    if told["status"] is HTTPStatus.UNAUTHORIZED:
        answered.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, UnsupportedEncoding):
        answered.headers["Accept-Encoding"] = "identity"
    if isinstance(error, RangeNotSatisfiable):
        answered.headers["Content-Range"] = f"bytes */{error.size}"
    if isinstance(error, BudgetExhausted):
        answered.headers.update(
            budget_headers(error.limit, error.per, error.left, error.retry_after)
        )
    return answered


def unavailable(names: Sequence[str]) -> ASGIApp:
    """
    Return a handler of unknown paths for when applications are not served.

    Their routes are not known, so the path may belong to one of them.
    """
    listed = ", ".join(names)
    error = ApplicationUnavailable(
        f"no route has this path, and the routes of these applications are not served "
        f"because their migration failed: {listed}"
    )

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await WebSocketClose()(scope, receive, send)
            return
        raise error

    return refuse


async def answer_invalid(request: Request, error: Exception) -> Response:
    """Respond to invalid parameters."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - as above
    refused = InvalidInput("the request is not valid", field_errors(error.errors()))
    return await answer_error(request, refused)


async def answer_plain(request: Request, error: Exception) -> Response:
    """Respond to errors of the framework: unknown route or method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    status = HTTPStatus(error.status_code)
    body = {
        "type": _type(status.name),
        "title": status.phrase,
        "status": status,
        "detail": status.description or status.phrase,
        "code": status.name,
        "retryable": False,
        "request_id": request_id_of(request),
    }
    answered = answer(body)
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        answered.headers["Allow"] = _allowed(request)
    return answered


def unexpected(request_id: str) -> Response:
    """Respond to an unexpected error, without details."""
    told = BackburnerError("an unexpected error occurred; it has been logged")
    return answer({**problem(told, request_id=request_id), "code": "INTERNAL"})


def problem(error: BackburnerError, *, request_id: str) -> dict[str, Any]:
    """Return an error as a problem object."""
    row = error.row if isinstance(error, Refusal) else row_of(type(error))
    told: dict[str, Any] = {
        "type": _type(error.code),
        "title": row.title,
        "status": row.status,
        "detail": _detail(error),
        "code": error.code,
        "retryable": error.retryable,
        "request_id": request_id,
    }
    seconds = error.seconds if isinstance(error, TooManyRequests) else row.retry_after
    if isinstance(error, BudgetExhausted):
        seconds = error.retry_after
        told["budget"] = {
            "scope": error.scope,
            "unit": error.unit,
            "limit": amount(error.unit, error.limit),
            "left": amount(error.unit, error.left),
            "per_seconds": error.per,
        }
    if isinstance(error, Refusal):
        seconds = error.retry_after
        told = {**error.members, **told}
    if seconds is not None:
        told["retry_after"] = seconds
    if isinstance(error, InvalidInput | UnknownCapability | Refusal) and error.fields:
        told["errors"] = [{"path": f.path, "message": f.message} for f in error.fields]
    if isinstance(error, NoResult):
        told["error"] = error.job.error
    if isinstance(error, TooManyWaiting):
        told |= {"depth": error.depth, "cap": error.cap}
    return told


def answer(body: Mapping[str, Any], retry_after: int | None = None) -> Response:
    """Return a response with a problem object."""
    headers = {"Cache-Control": "no-store"}
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    return Response(orjson.dumps(body), int(body["status"]), headers, MEDIA_TYPE)


def row_of(kind: type[BackburnerError]) -> Row:
    """Return the table's row of the nearest parent class."""
    return next(TABLE[parent] for parent in kind.__mro__ if parent in TABLE)


def documented(
    *kinds: type[BackburnerError],
    body: bool = False,
    writes: bool = False,
    public: bool = False,
) -> dict[int | str, dict[str, Any]]:
    """
    Describe for OpenAPI the errors of a route, including those of every route.

    `body` is for routes that read a JSON body, `writes` for those that change the
    store, and `public` for those that need no caller.
    """
    titles: dict[int, list[str]] = {}
    kinds = (*(_BODY if body else ()), *kinds, *((StoreFull,) if writes else ()))
    guards = () if public else _GUARDS
    encoding = (UnsupportedEncoding,) if UnsupportedMediaType in kinds else ()
    # Once each, in order.
    for kind in dict.fromkeys((*kinds, *encoding, *guards, BackburnerError)):
        row = row_of(kind)
        titles.setdefault(row.status.value, []).append(f"{row.title} (`{kind.code}`)")
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {
            "description": "; ".join(told),
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status, told in sorted(titles.items())
    }


_BODY: Final = (MalformedBody, BodyTooLarge, UnsupportedMediaType)
"""The errors of every route that reads a JSON body."""
_GUARDS: Final = (
    Unauthorized,
    Forbidden,
    ForeignOrigin,
    CsrfRefused,
    InvalidInput,
    TooManyRequests,
    StoreUnavailable,
)
"""The errors that any route may return before its own code runs."""


def field_errors(errors: Sequence[Any]) -> list[FieldError]:
    """Convert the errors of Pydantic."""
    return [FieldError.of(fault) for fault in errors[:MAX_FIELD_ERRORS]]


def request_id_of(connection: HTTPConnection) -> str:
    """Return the id under which the request is logged."""
    return str(connection.scope["state"]["request_id"])


_DETAILS: Final[Mapping[type[BackburnerError], str]] = {
    JobNotFound: "the job does not exist or belongs to another owner",
    FlowNotFound: "the flow does not exist or belongs to another owner",
    BatchNotFound: "the batch does not exist or belongs to another owner",
    StoreFull: "the store is full; nothing was stored",
    StoreUnavailable: "the store is temporarily unavailable; it is safe to try again",
}
"""Messages that replace those of errors that may contain the caller's values."""


def _detail(error: BackburnerError) -> str:
    if isinstance(error, UnknownCapability):
        if error.suggestion is None:
            return "no capability has this name; GET /v1/capabilities lists them"
        return f"no capability has this name; did you mean {error.suggestion!r}?"
    told = (_DETAILS[kind] for kind in type(error).__mro__ if kind in _DETAILS)
    return next(told, str(error))


def _type(code: str) -> str:
    return f"urn:backburner:problem:{code.lower().replace('_', '-')}"


def _allowed(request: Request) -> str:
    path = request.scope["path"]
    methods: set[str] = set()
    for route in request.app.routes:
        if hasattr(route, "methods") and route.path_regex.match(path):
            methods |= route.methods
    if "GET" in methods:
        methods.add("HEAD")
    return ", ".join(sorted(methods))
