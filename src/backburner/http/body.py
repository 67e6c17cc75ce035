"""Reads JSON request bodies within the size limit and refuses invalid ones."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from backburner.domain.errors import InvalidInput
from backburner.domain.plain import MAX_DEPTH, odd
from backburner.http.problems import (
    BodyTooLarge,
    MalformedBody,
    TooManyBodies,
    UnsupportedEncoding,
    UnsupportedMediaType,
    field_errors,
)

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

JSON = "application/json"
AT_ONCE = 64 * 1024
"""Smaller bodies are validated at once, larger ones in a thread."""
LARGE = 1024 * 1024
MAX_LARGE = 32
"""The maximum number of bodies over `LARGE` that are received at once."""
MAX_STREAMED = 128
"""The maximum number of streamed bodies over `LARGE` that are received at once.

Only one chunk of each is in memory."""


class Bodies:
    """Counts the large bodies that are being received, to bound memory."""

    def __init__(self, limit: int = MAX_LARGE) -> None:
        self.limit = limit
        self.taken = 0

    @contextmanager
    def place(self, request: Request) -> Iterator[None]:
        """Count a body that is large or of unknown size, while the block runs."""
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) <= LARGE:
            yield
            return
        if self.taken >= self.limit:
            raise TooManyBodies(
                f"{self.limit} large bodies are being received; try again later"
            )
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


async def read(request: Request, model: type[M], *, limit: int) -> M:
    """Return the body, validated by a model."""
    return matched(await read_value(request, limit=limit), model)


async def read_value(request: Request, *, limit: int) -> Any:
    """Return the body as any JSON value."""
    media_type = request.headers.get("content-type", "").partition(";")[0]
    if media_type.strip().lower() != JSON:
        raise UnsupportedMediaType(f"send the body with Content-Type: {JSON}")
    return parse(await read_bytes(request, limit))


def matched(value: Any, model: type[M]) -> M:
    """Return a value validated by a model; raise `InvalidInput`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        told = error.errors(
            include_url=False, include_context=False, include_input=False
        )
        raise InvalidInput("the body is not valid", field_errors(told)) from None


async def checked(request: Request, work: Callable[[], T], *, many: bool = False) -> T:
    """Run a validation; in a thread if it may take long."""
    length = request.headers.get("content-length", "")
    is_short = length.isdecimal() and int(length) <= AT_ONCE
    return work() if is_short and not many else await asyncio.to_thread(work)


def parse(body: bytes | str) -> Any:
    """Parse JSON strictly: no NaN, no lone surrogates, no NUL, limited depth."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise MalformedBody(f"the body is not valid JSON: {place}") from None
    if _may_be_odd(body) and (why := odd(value)) is not None:
        raise MalformedBody(f"the body {why}")
    return value


async def read_bytes(request: Request, limit: int) -> bytes:
    """Return the raw body; refuse one that is too large or compressed."""
    return b"".join([chunk async for chunk in stream(request, limit)])


async def stream(request: Request, limit: int) -> AsyncIterator[bytes]:
    """
    Yield the chunks of the body as they arrive; nothing is kept.

    A compressed body, or one whose declared length exceeds `limit`, is refused before
    the first chunk; any other as soon as it exceeds the limit. The reader must then
    discard what it wrote.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise UnsupportedEncoding("send the body without Content-Encoding")
    too_large = BodyTooLarge(f"the body may have at most {limit} bytes")
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limit:
        raise too_large
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large
        if chunk:
            yield chunk


def _may_be_odd(body: bytes | str) -> bool:
    """Return cheaply whether every value must be checked."""
    if isinstance(body, str):
        body = body.encode()
    if b"\\u0000" in body:
        return True
    return body.count(b"[") + body.count(b"{") > MAX_DEPTH
