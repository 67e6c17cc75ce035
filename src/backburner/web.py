"""
The public door for rooms with routes: who calls, what they sent, what is answered.

A room's contract is its own, its status codes included; `Refusal` carries them. What
is not said here is answered as everywhere: problems by RFC 9457, and a request's id.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request

from backburner.domain.errors import InvalidInput
from backburner.domain.job import Job
from backburner.engine.submission import GroupOptions
from backburner.http import body
from backburner.http.auth import Caller, require
from backburner.http.body import parse
from backburner.http.door import door_of
from backburner.http.headers import key_of, traceparent_of
from backburner.http.multipart import MAX_PARTS, Form, Part
from backburner.http.paging import OffsetPage, OffsetQuery, offset_page
from backburner.http.prefer import MAX_WAIT, Patience, awaited
from backburner.http.problems import (
    Refusal,
    UnsupportedMediaType,
    documented,
    field_errors,
    request_id_of,
)
from backburner.http.sse import ServerEvent, ServerEvents
from backburner.http.stream_access import StreamAccess, StreamReader
from backburner.http.wire import answer, time
from backburner.ports.log import log

__all__ = [
    "Caller",
    "Form",
    "GroupOptions",
    "OffsetPage",
    "OffsetQuery",
    "Part",
    "Refusal",
    "ServerEvent",
    "ServerEvents",
    "StreamAccess",
    "StreamReader",
    "answer",
    "checked",
    "documented",
    "invalid",
    "json_body",
    "key_of",
    "log",
    "multipart",
    "offset_page",
    "parse",
    "read",
    "read_bytes",
    "request_id_of",
    "require",
    "streamed",
    "time",
    "traceparent_of",
    "wait",
]

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def checked(adapter: TypeAdapter[T], value: Any) -> T:
    """Return plain data as a value; what does not match is a 400."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        told = error.errors(
            include_url=False, include_context=False, include_input=False
        )
        fields = field_errors(told)
        raise invalid(InvalidInput("the request is not valid", fields)) from None


async def read(request: Request, model: type[M]) -> M:
    """
    Return the body as a model; one that does not match is a 400.

    It is read as JSON whatever the `Content-Type` says (`curl -d` says that it is a
    form), except that multipart is a 415.
    """
    media_type = request.headers.get("content-type", "").strip().lower()
    if media_type.startswith("multipart/"):
        raise UnsupportedMediaType("send the body as JSON: multipart is not read")
    door = door_of(request)
    with door.bodies.place(request):
        content = await body.read_bytes(request, door.settings.body_limit)
        try:
            return body.matched(parse(content), model)
        except InvalidInput as error:
            raise invalid(error) from None


async def read_bytes(request: Request, limit: int) -> bytes:
    """Return the body as it is, if it has at most `limit` bytes."""
    door = door_of(request)
    with door.bodies.place(request):
        return await body.read_bytes(request, min(limit, door.settings.body_limit))


@asynccontextmanager
async def multipart(
    request: Request, *, limit: int, parts: int = MAX_PARTS
) -> AsyncIterator[Form]:
    """
    Give the parts of a multipart form as they arrive, without holding them in memory.

    `async with multipart(request, limit=…) as form: async for part in form: …`. A part
    is read before the next one: `await part.read(limit=…)`, or `async for chunk in
    part`. The whole body has at most `limit` bytes, and the form so many parts.
    """
    with door_of(request).uploads.place(request):
        yield Form(request, body.stream(request, limit), parts=parts)


async def wait(request: Request, caller: Caller, job_id: str, *, seconds: int) -> Job:
    """
    Return a job of the caller when it ends, or as it is after some seconds.

    It waits for 60 seconds at most and counts as one of the caller's streams; if there
    is no place for another one, it does not wait. Input and output are whole.
    """
    engine = door_of(request).engine
    patience = Patience(
        lambda: engine.find(job_id, caller.visible),
        lambda span: engine.wait(job_id, caller.visible, timeout=span),
    )
    job = await awaited(request, min(max(0, seconds), MAX_WAIT), patience)
    return await engine.payloads.whole(job)


@asynccontextmanager
async def streamed(
    request: Request, *, limit: int
) -> AsyncIterator[AsyncIterator[bytes]]:
    """
    Give the body in chunks as they arrive, without holding it in memory.

    `async with streamed(request, limit=100_000_000) as chunks: async for chunk in …`.
    A body with more than `limit` bytes is a 413, a compressed one a 415. It arrives
    within `BACKBURNER_BODY_SECONDS` and a second more for each 32 KiB, or is refused.
    If the block raises or the client leaves, discard what was written of the chunks.
    """
    with door_of(request).uploads.place(request):
        yield body.stream(request, limit)


def json_body(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """Describe for OpenAPI a body that a route reads by itself; one of plain fields."""
    schema = adapter.json_schema()
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def invalid(error: InvalidInput) -> Refusal:
    """Say by a 400 what of a request does not match."""
    return Refusal(400, error.code, str(error), title="Not valid", fields=error.fields)
