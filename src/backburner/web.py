"""
Public API for applications with routes: callers, requests, responses.

An application defines its own contract, with status codes; use `Refusal` for them.
Everything else is answered as by the platform: problems by RFC 9457, request ids.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request

from backburner.client.errors import WebhookError
from backburner.client.webhooks import check_webhook_headers, verify_webhook
from backburner.domain.errors import InvalidInput
from backburner.domain.jobs.job import Job
from backburner.engine.submit.idempotency import IdempotencyKey
from backburner.engine.submit.submission import GroupOptions
from backburner.http import body
from backburner.http.app_routes import Route, json_body, routes_of
from backburner.http.auth import Caller, acting_as, require
from backburner.http.body import parse
from backburner.http.headers import key_of, origin, traceparent_of
from backburner.http.multipart import MAX_PARTS, Form, Part
from backburner.http.paging import (
    CursorPage,
    CursorQuery,
    OffsetPage,
    OffsetQuery,
    cursor_page,
    offset_page,
)
from backburner.http.prefer import FindOrWait, awaited
from backburner.http.problems import (
    Refusal,
    UnsupportedMediaType,
    documented,
    field_errors,
    request_id_of,
)
from backburner.http.routes.budgets import budget_left
from backburner.http.routes.queues import counts
from backburner.http.service_client import ServiceAnswer, ServiceClient, Unsure
from backburner.http.state import server_state_of
from backburner.http.streams.access import StreamAccess, StreamReader
from backburner.http.streams.sse import ServerEvent, ServerEvents
from backburner.http.wire import answer, time
from backburner.ports.log import log

__all__ = [
    "Caller",
    "CursorPage",
    "CursorQuery",
    "Form",
    "GroupOptions",
    "IdempotencyKey",
    "OffsetPage",
    "OffsetQuery",
    "Part",
    "Refusal",
    "Route",
    "ServerEvent",
    "ServerEvents",
    "ServiceAnswer",
    "ServiceClient",
    "StreamAccess",
    "StreamReader",
    "Unsure",
    "acting_as",
    "answer",
    "budget_left",
    "checked",
    "cursor_page",
    "documented",
    "found",
    "idempotency_key",
    "invalid",
    "json_body",
    "key_of",
    "log",
    "multipart",
    "offset_page",
    "origin",
    "parse",
    "queue_counts",
    "read",
    "read_bytes",
    "read_webhook",
    "request_id_of",
    "require",
    "routes_of",
    "streamed",
    "time",
    "traceparent_of",
    "wait",
]

LONGEST_WAIT: Final = 600
"""The maximum number of seconds that `wait` waits."""

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def checked(adapter: TypeAdapter[T], value: Any) -> T:
    """Validate plain data; an error is answered with 400."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        errors = error.errors(
            include_url=False, include_context=False, include_input=False
        )
        fields = field_errors(errors)
        raise invalid(InvalidInput("the request is not valid", fields)) from None


async def read(request: Request, model: type[M]) -> M:
    """
    Return the body as a model; an invalid one is answered with 400.

    It is read as JSON whatever the `Content-Type` (`curl -d` sends that of a form), but
    multipart is answered with 415.
    """
    media_type = request.headers.get("content-type", "").strip().lower()
    if media_type.startswith("multipart/"):
        raise UnsupportedMediaType("send the body as JSON: multipart is not read")
    server_state = server_state_of(request)
    with server_state.bodies.place(request):
        content = await body.read_bytes(request, server_state.settings.body_limit)
        try:
            return body.matched(parse(content), model)
        except InvalidInput as error:
            raise invalid(error) from None


def found(value: T | None, what: str) -> T:
    """Return a value of the caller; `None` is answered with 404, `TASK_NOT_FOUND`."""
    if value is None:
        message = f"the {what} does not exist or belongs to another owner"
        raise Refusal(404, f"{what.upper()}_NOT_FOUND", message)
    return value


def idempotency_key(request: Request, body: BaseModel) -> IdempotencyKey | None:
    """Return a request's `Idempotency-Key` with a digest of its body, if it has one."""
    key = key_of(request)
    try:
        return None if key is None else IdempotencyKey.of(key, body)
    except InvalidInput as error:
        raise invalid(error) from None


async def read_webhook(
    request: Request, adapter: TypeAdapter[T], secret: str, *, limit: int
) -> T:
    """
    Return the content of a signed webhook of at most `limit` bytes.

    An invalid or old signature is answered with 401; without the three headers of a
    signature its body is not read. Invalid content is answered with 400.
    """
    now = server_state_of(request).engine.now() / 1000
    try:
        check_webhook_headers(request.headers, now=now)
        content = await read_bytes(request, limit)
        verify_webhook(content, request.headers, secret, now=now)
    except WebhookError as error:
        status = 400 if error.code == "WEBHOOK_BODY" else 401
        raise Refusal(status, error.code, str(error)) from None
    return checked(adapter, parse(content))


async def read_bytes(request: Request, limit: int) -> bytes:
    """Return the raw body of at most `limit` bytes."""
    server_state = server_state_of(request)
    with server_state.bodies.place(request):
        return await body.read_bytes(
            request, min(limit, server_state.settings.body_limit)
        )


@asynccontextmanager
async def multipart(
    request: Request, *, limit: int, parts: int = MAX_PARTS
) -> AsyncIterator[Form]:
    """
    Yield the parts of a multipart form as they arrive, without holding them in memory.

    `async with multipart(request, limit=…) as form: async for part in form: …`. Read a
    part before the next one: `await part.read(limit=…)`, or `async for chunk in part`.
    The whole body has at most `limit` bytes, and the form at most `parts` parts.
    """
    with server_state_of(request).uploads.place(request):
        yield Form(request, body.stream(request, limit), parts=parts)


async def wait(request: Request, caller: Caller, job_id: str, *, seconds: int) -> Job:
    """
    Return a job of the caller once it has ended, or as it is after `seconds`.

    It waits for 10 minutes at most and counts as one of the caller's streams. It does
    not wait if no further stream is allowed, and stops when the client or the server
    goes away. Input and output are complete.
    """
    engine = server_state_of(request).engine
    find_or_wait = FindOrWait(
        lambda: engine.find(job_id, caller.visible),
        lambda span: engine.wait(job_id, caller.visible, timeout=span),
    )
    job = await awaited(request, min(max(0, seconds), LONGEST_WAIT), find_or_wait)
    return await engine.payloads.whole(job)


async def queue_counts(request: Request, queue: str) -> dict[str, Any]:
    """Return how many jobs of a queue wait, run and have ended; 404 if unknown."""
    return await counts(server_state_of(request).engine, queue)


@asynccontextmanager
async def streamed(
    request: Request, *, limit: int
) -> AsyncIterator[AsyncIterator[bytes]]:
    """
    Yield the body in chunks as they arrive, without holding it in memory.

    `async with streamed(request, limit=100_000_000) as chunks: async for chunk in …`. A
    body of more than `limit` bytes is answered with 413, a compressed one with 415. It
    must arrive within `BACKBURNER_BODY_SECONDS` plus a second for each 32 KiB. If the
    block raises or the client disconnects, discard what was written so far.
    """
    with server_state_of(request).uploads.place(request):
        yield body.stream(request, limit)


def invalid(error: InvalidInput) -> Refusal:
    """Return the 400 response for an invalid request."""
    return Refusal(400, error.code, str(error), title="Not valid", fields=error.fields)
