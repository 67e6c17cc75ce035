"""
Access to applications' blobs by signed URLs: one method, one object, an expiry.

The signature takes the place of a key: anyone with the URL may use it. Anything that
the URL does not allow is refused with 403, whatever the reason.
"""

import re
from collections.abc import AsyncIterator
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from backburner.domain.blobs.app_blob import AppBlob
from backburner.domain.blobs.blob import BlobKey, attachment
from backburner.domain.errors import (
    BlobMissing,
    BlobTooLarge,
    InvalidInput,
    StoreUnavailable,
)
from backburner.engine.blobs import streams
from backburner.engine.blobs.app_blobs import BlobService
from backburner.engine.blobs.urls import FILES
from backburner.http import body, wire
from backburner.http.auth import Anybody
from backburner.http.problems import (
    BodyTooLarge,
    LinkRefused,
    RangeNotSatisfiable,
    TooManyBodies,
    UnsupportedEncoding,
    documented,
)
from backburner.http.routes.blobs import GUARDS
from backburner.http.schemas.jobs import Signed
from backburner.http.state import server_state_of

router = APIRouter(tags=["files"])

PATH: Final = f"{FILES}{{file_id}}"
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class SignedFile(Signed):
    """The signature of a URL and, for PUT, what it allows."""

    size: int | None = Field(None, ge=0, lt=2**53, description="Bytes, exactly.")
    max: int | None = Field(None, ge=0, lt=2**53, description="Bytes, at most.")
    type: str | None = Field(None, max_length=255, description="The media type.")

    @property
    def terms(self) -> dict[str, str]:
        """Return what is signed in addition to method, object and expiry."""
        terms = self.model_dump(include={"size", "max", "type"}, exclude_none=True)
        return {name: str(value) for name, value in terms.items()}


class FileReceipt(BaseModel):
    """Size and digest of an upload."""

    model_config = ConfigDict(extra="forbid")

    size: int
    sha256: str


class Part(NamedTuple):
    """A range of bytes of a content."""

    offset: int
    size: int


@router.get(
    PATH,
    operation_id="get_file",
    summary="Get a blob by its signed URL",
    response_model=None,
    responses={
        200: {
            "description": "The content, to be saved.",
            "content": {"application/octet-stream": {}},
        },
        206: {"description": "The part that `Range` asks for."},
        **documented(
            LinkRefused,
            BlobMissing,
            RangeNotSatisfiable,
            InvalidInput,
            StoreUnavailable,
            public=True,
        ),
    },
)
async def download(
    request: Request,
    _caller: Anybody,
    file_id: str,
    query: Annotated[SignedFile, Query()],
) -> Response:
    """Send the content that the URL was signed for, or one range of it."""
    service = _service(request)
    _check(service, "GET", file_id, query)
    blob = await service.signed(BlobKey.read(file_id).job)
    headers = {
        **GUARDS,
        "Accept-Ranges": "bytes",
        "Content-Disposition": attachment(blob.name or blob.id),
        "ETag": f'"{blob.sha256}"',
    }
    part = asked_part(request.headers.get("range", ""), blob.size)
    if request.headers.get("if-range", headers["ETag"]) != headers["ETag"]:
        part = Part(0, blob.size)
    if part is None:
        raise RangeNotSatisfiable(blob.size)
    return _send(service, blob, part, headers)


@router.put(
    PATH,
    operation_id="put_file",
    summary="Send an upload to its signed URL",
    response_model=FileReceipt,
    response_description="It has arrived; the application has yet to confirm it.",
    responses=documented(
        LinkRefused,
        InvalidInput,
        TooManyBodies,
        UnsupportedEncoding,
        StoreUnavailable,
        public=True,
    ),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {}},
        }
    },
)
async def upload(
    request: Request,
    _caller: Anybody,
    file_id: str,
    query: Annotated[SignedFile, Query()],
) -> Response:
    """Store the bytes that the URL was signed for; a repeat replaces them."""
    service = _service(request)
    _check(service, "PUT", file_id, query)
    if query.type not in (None, request.headers.get("content-type")):
        raise LinkRefused(f"the URL is for the Content-Type {query.type}")
    limit = query.max if query.size is None else query.size
    most = service.limit if limit is None else min(limit, service.limit)
    try:
        with server_state_of(request).uploads.place(request):
            chunks = _whole(body.stream(request, most), query.size)
            arrived = await service.write(BlobKey.read(file_id), chunks, most)
    except (BodyTooLarge, BlobTooLarge):
        raise LinkRefused(f"the URL is for at most {most} bytes") from None
    await service.note_upload(BlobKey.read(file_id).job, arrived.size)
    return wire.answer({"size": arrived.size, "sha256": arrived.sha256})


@router.api_route(PATH, methods=["POST", "PATCH", "DELETE"], include_in_schema=False)
async def refuse(_caller: Anybody) -> Response:
    """Refuse methods for which no URL is signed."""
    raise LinkRefused("the URL is for another method")


def asked_part(header: str, size: int) -> Part | None:
    """
    Return the part that a `Range` header selects; `None` if there is no such part.

    Anything but one range of bytes selects the whole content, as RFC 9110 requires.
    """
    match = _RANGE.fullmatch(header.strip())
    if match is None or match.groups() == ("", ""):
        return Part(0, size)
    first, last = match.groups()
    if not first:
        offset, end = max(0, size - int(last)), size
    else:
        offset, end = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < offset:
            return Part(0, size)
    return Part(offset, end - offset) if offset < end else None


def _check(service: BlobService, method: str, file_id: str, query: SignedFile) -> None:
    proof = query.model_dump(include={"exp", "kid", "sig"})
    path, terms = FILES + file_id, query.terms
    if not service.urls.signed_urls.holds(method, path, **proof, terms=terms):
        raise LinkRefused("the URL is not valid or has expired")


def _send(
    service: BlobService, blob: AppBlob, part: Part, headers: dict[str, str]
) -> Response:
    pieces = streams.read(service.blobs, blob.key, offset=part.offset, size=part.size)
    told = {**headers, "Content-Length": str(part.size)}
    is_whole = part.size == blob.size
    if not is_whole:
        last = part.offset + part.size - 1
        told["Content-Range"] = f"bytes {part.offset}-{last}/{blob.size}"
    status = 200 if is_whole else 206
    return StreamingResponse(pieces, status, told, blob.content_type)


async def _whole(
    chunks: AsyncIterator[bytes], size: int | None
) -> AsyncIterator[bytes]:
    """Pass chunks on; refuse a body with fewer bytes than were signed."""
    arrived = 0
    async for chunk in chunks:
        arrived += len(chunk)
        yield chunk
    if size is not None and arrived != size:
        raise LinkRefused(f"the URL is for {size} bytes, not {arrived}")


def _service(request: Request) -> BlobService:
    service = server_state_of(request).engine.blobs
    if service is None:
        raise LinkRefused("this server has no blob store for applications")
    return service
