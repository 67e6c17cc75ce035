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
    """A file that a client sends by itself: exactly this, or nothing."""

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
        """Return a URL by which a client without a key sends a file."""
        wanted = await read(request, NewFile)
        put = await files_of(caller).upload_url(size=wanted.size)
        url = urljoin(str(request.base_url), put.url)
        return answer({"upload": put.upload, "url": url, "headers": put.headers}, 201)

    @router.post("/reports/uploads/{upload}")
    async def confirm(request: Request, upload: str, caller: Writer) -> Response:
        """Make a file of what the client has sent, if it is what was announced."""
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
        """List files, the oldest first."""
        found = await files_of(caller).list(after=after)
        return answer({"items": [shown(blob) for blob in found]})

    @router.get("/reports/files/{blob_id}")
    async def show(request: Request, blob_id: str, caller: Reader) -> Response:
        """Show a file, with a URL by which a client without a key reads it."""
        files = files_of(caller)
        blob, get = await files.find(blob_id), await files.download_url(blob_id)
        return answer({**shown(blob), "url": urljoin(str(request.base_url), get.url)})

    @router.delete("/reports/files/{blob_id}")
    async def drop(blob_id: str, caller: Writer) -> Response:
        """Delete a file; one that is not there is no error."""
        await files_of(caller).delete(blob_id)
        return Response(status_code=204)

    return router.routes


def shown(blob: AppBlob) -> dict[str, Any]:
    """Return what a client is told of a file."""
    return {"id": blob.id, "seq": blob.seq, "name": blob.name, "size": blob.size}
