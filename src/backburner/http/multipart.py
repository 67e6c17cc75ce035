"""
Reads multipart forms (RFC 7578) part by part as they arrive.

Nothing is kept in memory or on disk: the content of a part is read in chunks before the
next part. Names and file names are user input and never used as paths.
"""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from backburner.http.problems import (
    BodyTooLarge,
    MalformedBody,
    UnsupportedMediaType,
)

FORM: Final = b"multipart/form-data"
MAX_PARTS: Final = 100
MAX_HEADERS: Final = 16
MAX_HEADER_BYTES: Final = 4096

_Data = bytes | None
"""A chunk of the current part; `None` ends it."""


@dataclass(eq=False)
class Part:
    """A field or file of a form; iterate over it, or `read` it as a whole."""

    name: str
    filename: str | None
    """The name given by the client: show it, but never use it as a path."""
    media_type: str
    """The media type given by the client, without parameters; default `text/plain`."""
    _form: "Form" = field(repr=False)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._form.chunk_of(self)) is not None:
            yield chunk

    async def read(self, *, limit: int) -> bytes:
        """Return the content; raise `BodyTooLarge` above `limit` bytes."""
        content = bytearray()
        async for chunk in self:
            content += chunk
            if len(content) > limit:
                raise BodyTooLarge(f"a part of the form may have at most {limit} bytes")
        return bytes(content)


class Form:
    """The parts of a form in the order of their arrival; each is read once."""

    def __init__(
        self, request: Request, chunks: AsyncIterator[bytes], *, parts: int = MAX_PARTS
    ) -> None:
        self._chunks = chunks
        self._left = self._most = parts
        self._came: deque[Part | _Data] = deque()
        self._current: Part | None = None
        self._is_complete = False
        self._headers: dict[bytes, bytes] = {}
        self._name = self._value = b""
        self._parser = self._started(_boundary(request))

    async def __aiter__(self) -> AsyncIterator[Part]:
        while (part := await self._next_part()) is not None:
            yield part

    async def chunk_of(self, part: Part) -> _Data:
        """Return the next chunk of the current part; `None` at its end."""
        if part is not self._current:
            return None
        item = await self._next()
        if isinstance(item, bytes):
            return item
        self._current = None
        return None

    async def _next_part(self) -> Part | None:
        while self._current is not None:  # skip the unread rest of the part
            await self.chunk_of(self._current)
        item = await self._next()
        self._current = item if isinstance(item, Part) else None
        return self._current

    async def _next(self) -> Part | _Data:
        """Return the next part, chunk or end of a part; `None` after the last part."""
        while not self._came:
            chunk = await anext(self._chunks, None)
            if chunk is None:
                if not self._is_complete:
                    raise MalformedBody("the form ends before its last boundary")
                return None
            self._feed(chunk)
        return self._came.popleft()

    def _feed(self, chunk: bytes) -> None:
        try:
            self._parser.write(chunk)
        except FormParserError:
            raise MalformedBody("the body is not a valid multipart form") from None

    def _started(self, boundary: bytes) -> MultipartParser:
        def data(content: bytes, start: int, end: int) -> None:
            self._came.append(content[start:end])

        def name(content: bytes, start: int, end: int) -> None:
            self._name += content[start:end]

        def value(content: bytes, start: int, end: int) -> None:
            self._value += content[start:end]

        return MultipartParser(
            boundary,
            {
                "on_header_field": name,
                "on_header_value": value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._begin_part,
                "on_part_data": data,
                "on_part_end": lambda: self._came.append(None),
                "on_end": self._complete,
            },
            max_header_count=MAX_HEADERS,
            max_header_size=MAX_HEADER_BYTES,
        )

    def _end_header(self) -> None:
        self._headers[self._name.strip().lower()] = self._value.strip()
        self._name = self._value = b""

    def _begin_part(self) -> None:
        if self._left == 0:
            raise BodyTooLarge(f"the form may have at most {self._most} parts")
        self._left -= 1
        headers, self._headers = self._headers, {}
        kind, options = parse_options_header(headers.get(b"content-disposition"))
        if kind != b"form-data" or b"name" not in options:
            raise MalformedBody("a part of the form has no name")
        filename = options.get(b"filename")
        media_type, _ = parse_options_header(headers.get(b"content-type"))
        self._came.append(
            Part(
                _text(options[b"name"]),
                None if filename is None else _text(filename),
                media_type.decode("latin-1") or "text/plain",
                self,
            )
        )

    def _complete(self) -> None:
        self._is_complete = True


def _boundary(request: Request) -> bytes:
    kind, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary", b"")
    if kind != FORM or not 0 < len(boundary) <= 70:  # noqa: PLR2004 - RFC 2046
        raise UnsupportedMediaType(
            "send the body as multipart/form-data with a boundary"
        )
    return boundary


def _text(value: bytes) -> str:
    """Decode a name as browsers send it: in UTF-8."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise MalformedBody("a name in the form is not valid text")
    return text
