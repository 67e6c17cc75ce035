"""Files that belong to reports: streamed through the server, or by signed URLs."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any
from urllib.parse import urljoin

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from backburner import AppBlob, AppBlobs, Backburner
from backburner.web import Caller, answer, read, require, streamed

Writer = Annotated[Caller, require("jobs:write")]
Reader = Annotated[Caller, require("jobs:read")]
LARGEST = 1_000_000_000
KEPT = timedelta(days=30)


class NewFile(BaseModel):
    """The size and hash of a file that a client will upload."""

    name: str
    size: int = Field(ge=0, le=LARGEST)
    sha256: str


def routes(backburner: Backburner) -> Sequence[Any]:
    """Return the routes over an open `Backburner`."""
    router = APIRouter(tags=["reports"])

    def files_of(caller: Caller) -> AppBlobs:
        return backburner.blobs("reports", caller.owner)

    @router.put("/reports/files/{name}")
    async def send(request: Request, name: str, caller: Writer) -> Response:
        """Store the body as a file while it arrives."""
        async with streamed(request, limit=LARGEST) as chunks:
            blob = await files_of(caller).write(chunks, name=name, keep=KEPT)
        return answer(shown(blob), 201)

    @router.post("/reports/uploads")
    async def offer(request: Request, caller: Writer) -> Response:
        """Return a URL with which a client without a key uploads a file."""
        wanted = await read(request, NewFile)
        put = await files_of(caller).upload_url(size=wanted.size)
        url = urljoin(str(request.base_url), put.url)
        return answer({"upload": put.upload, "url": url, "headers": put.headers}, 201)

    @router.post("/reports/uploads/{upload}")
    async def confirm(request: Request, upload: str, caller: Writer) -> Response:
        """Store the uploaded content as a file, if it is as announced."""
        wanted = await read(request, NewFile)
        blob = await files_of(caller).confirm(
            upload,
            name=wanted.name,
            size=wanted.size,
            sha256=wanted.sha256,
            keep=KEPT,
        )
        return answer(shown(blob), 201)

    @router.get("/reports/files")
    async def show_all(caller: Reader, after: int = 0) -> Response:
        """List files, oldest first."""
        found = await files_of(caller).list(after=after)
        return answer({"items": [shown(blob) for blob in found]})

    @router.get("/reports/files/{blob_id}")
    async def show(request: Request, blob_id: str, caller: Reader) -> Response:
        """Return a file, with a URL with which a client without a key reads it."""
        files = files_of(caller)
        blob, get = await files.find(blob_id), await files.download_url(blob_id)
        return answer({**shown(blob), "url": urljoin(str(request.base_url), get.url)})

    @router.delete("/reports/files/{blob_id}")
    async def drop(blob_id: str, caller: Writer) -> Response:
        """Delete a file; a missing file is not an error."""
        await files_of(caller).delete(blob_id)
        return Response(status_code=204)

    return router.routes


def shown(blob: AppBlob) -> dict[str, Any]:
    """Return a file as JSON."""
    return {"id": blob.id, "seq": blob.seq, "name": blob.name, "size": blob.size}
