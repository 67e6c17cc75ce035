"""`documents` over HTTP: batches, uploads, files, dead letters and search."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Final
from urllib.parse import urljoin

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from backburner import Backburner, BackburnerError, IllegalTransition, JobNotFound
from backburner.web import (
    Caller,
    CursorQuery,
    OffsetQuery,
    Refusal,
    Route,
    answer,
    found,
    origin,
    read,
    require,
    routes_of,
    time,
)
from backburner_apps.documents import (
    answer_routes,
    changes,
    dead_letters,
    removal,
    search_routes,
    views,
)
from backburner_apps.documents.settings import DocumentsSettings
from backburner_apps.documents.shapes import Confirmation, NewBatch, NewFile
from backburner_apps.documents.uploads import (
    BatchFull,
    ContentMismatch,
    NotConfirmable,
    NotUploaded,
    Uploads,
    open_batch,
)

Writer = Annotated[Caller, require("jobs:write")]
Reader = Annotated[Caller, require("jobs:read")]
LettersReader = Annotated[Caller, require("dead-letters:read")]
LettersRetrier = Annotated[Caller, require("dead-letters:retry")]
STATUS: Final[dict[type[BackburnerError], int]] = {
    BatchFull: 409,
    NotUploaded: 409,
    NotConfirmable: 409,
    ContentMismatch: 422,
}
UPLOADS: Final = "/api/v2/uploads"
BATCH: Final = f"{UPLOADS}/batches/{{batch_id}}"
FILE: Final = f"{UPLOADS}/files/{{file_id}}"
MOST_RETRIED: Final = 1_000
"""How many dead letters one `retry-all` retries; call it again for more."""


class LettersQuery(OffsetQuery):
    """`?limit=&offset=` of the dead letters."""

    limit: int = Field(50, ge=1, le=100)


@asynccontextmanager
async def serves(bb: Backburner) -> AsyncIterator[Sequence[BaseRoute]]:
    """Give the routes over an open `Backburner`."""
    yield [*routes(bb), *answer_routes.routes(bb)]


def routes(bb: Backburner) -> Sequence[BaseRoute]:
    """Return the routes."""
    batch, file, letter = Batches(bb), Files(bb), DeadLetters(bb)
    listed = [
        Route(*("POST", f"{UPLOADS}/batches", batch.create, "Open a batch"), NewBatch),
        Route("GET", f"{UPLOADS}/batches", batch.list, "List batches"),
        Route("GET", BATCH, batch.show, "Show a batch"),
        Route("DELETE", BATCH, batch.delete, "Delete a batch with its files"),
        Route("POST", f"{BATCH}/cancel", batch.cancel, "Cancel a batch"),
        Route(
            *("POST", f"{BATCH}/upload-urls", batch.request_url, "Request a URL"),
            NewFile,
        ),
        Route(
            *("POST", f"{BATCH}/files/{{file_id}}/confirm", file.confirm),
            *("Confirm an upload", Confirmation),
        ),
        Route("GET", f"{UPLOADS}/files", file.list, "List files"),
        Route("GET", FILE, file.show, "Show a file"),
        Route("DELETE", FILE, file.delete, "Delete a file"),
        Route("GET", f"{UPLOADS}/dlq", letter.list, "List dead letters"),
        Route("POST", f"{UPLOADS}/dlq/retry-all", letter.retry_all, "Retry all"),
        Route("POST", f"{UPLOADS}/dlq/{{file_id}}/retry", letter.retry, "Retry a file"),
    ]
    named = [
        route._replace(operation_id=f"documents_{_operation(route)}")
        for route in listed
    ]
    return [*routes_of("documents", named), *search_routes.routes(bb)]


class Batches:
    """Routes of batches."""

    def __init__(self, bb: Backburner) -> None:
        self._bb = bb
        self._uploads = Uploads(bb)
        self._settings = bb.settings_of(DocumentsSettings)

    async def create(self, request: Request, caller: Writer) -> Response:
        """Open a batch of `fileCount` files."""
        asked = await read(request, NewBatch)
        most = self._settings.batch_limit
        if asked.file_count > most:
            message = f"fileCount is {asked.file_count}: a batch has 1 to {most} files"
            raise Refusal(400, "INVALID_INPUT", message)
        batch_id = self._bb.engine.draw("uploads")
        await self._bb.transact(open_batch, caller.owner, batch_id, asked.file_count)
        made = await self._bb.read(views.batch_body, caller.owner, batch_id)
        where = f"{UPLOADS}/batches/{batch_id}"
        return answer(made, 201, {"Location": where})

    async def list(
        self, caller: Reader, query: Annotated[CursorQuery, Query()]
    ) -> Response:
        """List one's own batches, the newest first."""
        page, bodies = await self._bb.read(views.batch_page, caller.owner, query)
        return answer({"batches": bodies, "nextCursor": page.next_cursor})

    async def show(self, caller: Reader, batch_id: str) -> Response:
        """Show the state of a batch and its summary."""
        body = await self._bb.read(views.batch_body, caller.owner, batch_id)
        return answer(found(body, "batch"))

    async def request_url(
        self, request: Request, caller: Writer, batch_id: str
    ) -> Response:
        """Return a signed URL that takes the bytes of one more file by PUT."""
        new = await read(request, NewFile)
        most = self._settings.file_limit
        if new.file_size > most:
            message = f"fileSize is {new.file_size}: a file has at most {most} bytes"
            raise Refusal(413, "FILE_TOO_LARGE", message)
        await self._own(caller, batch_id)
        try:
            made = await self._uploads.request(caller.owner, batch_id, new)
        except BatchFull as error:
            raise _refusal(error) from None
        return answer(
            {
                "fileId": made.file_id,
                "batchId": batch_id,
                "status": "pending_upload",
                "uploadUrl": urljoin(str(request.base_url), made.url.url),
                "method": "PUT",
                "headers": dict(made.url.headers),
                "expiresAt": time(made.url.expires_at),
            },
            201,
        )

    async def cancel(self, caller: Writer, batch_id: str) -> Response:
        """End whatever of a batch has not ended; what is ready stays."""
        await self._own(caller, batch_id)
        flows = await self._bb.read(removal.flows_of, batch_id)
        await self._bb.transact(removal.cancel_batch, batch_id)
        flows += await self._bb.read(removal.flows_of, batch_id)
        await removal.cancel_flows(self._bb, caller.owner, [*dict.fromkeys(flows)])
        body = await self._bb.read(views.batch_body, caller.owner, batch_id)
        return answer(found(body, "batch"))

    async def delete(self, caller: Writer, batch_id: str) -> Response:
        """Delete a batch with its files, their chunks and their contents."""
        await self._own(caller, batch_id)
        flows = await self._bb.read(removal.flows_of, batch_id)
        await self._bb.transact(removal.delete_batch, caller.owner, batch_id)
        with suppress(BackburnerError):  # otherwise the jobs find no file and end
            await removal.cancel_flows(self._bb, caller.owner, flows)
        return Response(status_code=204)

    async def _own(self, caller: Caller, batch_id: str) -> None:
        row = await self._bb.read(views.find_batch, caller.owner, batch_id)
        found(row, "batch")


class Files:
    """Routes of files."""

    def __init__(self, bb: Backburner) -> None:
        self._bb = bb
        self._uploads = Uploads(bb)

    async def list(
        self,
        caller: Reader,
        query: Annotated[CursorQuery, Query()],
        batch_id: Annotated[str | None, Query(alias="batchId", max_length=100)] = None,
    ) -> Response:
        """List one's own files, the newest first; `batchId` names one batch."""
        page = await self._bb.read(views.file_page, caller.owner, batch_id, query)
        bodies = [views.written_file(row) for row in page.rows]
        return answer({"files": bodies, "nextCursor": page.next_cursor})

    async def show(self, caller: Reader, file_id: str) -> Response:
        """Show the state of a file."""
        return answer(views.written_file(await self._own(caller, file_id)))

    async def confirm(
        self, request: Request, caller: Writer, batch_id: str, file_id: str
    ) -> Response:
        """Check size and md5 of what was uploaded, and begin to process it."""
        said = await read(request, Confirmation)
        file = await self._own(caller, file_id)
        found(file if file.batch_id == batch_id else None, "file")
        try:
            await self._uploads.confirm(file, said, origin(request, caller))
        except tuple(STATUS) as error:
            raise _refusal(error) from None
        return answer({"fileId": file_id, "status": "queued"})

    async def delete(self, caller: Writer, file_id: str) -> Response:
        """Delete a file with its chunks and contents."""
        file = await self._own(caller, file_id)
        await self._bb.transact(removal.delete_file, caller.owner, file)
        flows = [file.flow_id] if file.flow_id else []
        with suppress(BackburnerError):  # otherwise its jobs find no file and end
            await removal.cancel_flows(self._bb, caller.owner, flows)
        return Response(status_code=204)

    async def _own(self, caller: Caller, file_id: str) -> Any:
        row = await self._bb.read(changes.find_own, caller.owner, file_id)
        return found(row, "file")


class DeadLetters:
    """Routes of files that failed in a stage."""

    def __init__(self, bb: Backburner) -> None:
        self._bb = bb

    async def list(
        self, caller: LettersReader, query: Annotated[LettersQuery, Query()]
    ) -> Response:
        """List the caller's dead letters, or with `tenant:read` those of the tenant."""
        page = await self._bb.read(dead_letters.listed, caller.visible, query)
        entries = [await dead_letters.entry(self._bb, caller, row) for row in page.rows]
        return answer({"entries": entries, "total": page.total})

    async def retry(self, caller: LettersRetrier, file_id: str) -> Response:
        """Retry a file at the stage in which it failed."""
        row = await self._bb.read(dead_letters.find, caller.visible, file_id)
        try:
            await dead_letters.retry(self._bb, caller, found(row, "dead_letter"))
        except IllegalTransition as error:
            raise Refusal(409, "NOT_FAILED", str(error)) from None
        except JobNotFound:
            message = "the job of the file was deleted: upload the file again"
            raise Refusal(404, "DEAD_LETTER_NOT_FOUND", message) from None
        return answer({"success": True})

    async def retry_all(self, caller: LettersRetrier) -> Response:
        """Retry all visible dead letters, oldest first, with a result for each."""
        rows = await self._bb.read(dead_letters.every, caller.visible, MOST_RETRIED)
        results = [await dead_letters.retry_one(self._bb, caller, row) for row in rows]
        return answer({"results": results})


def _refusal(error: BackburnerError) -> Refusal:
    return Refusal(STATUS[type(error)], error.code, str(error))


def _operation(route: Route) -> str:
    owner = type(getattr(route.handler, "__self__", None)).__name__.lower()
    return f"{owner}_{route.handler.__name__}"
