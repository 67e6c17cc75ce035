"""The route that imports a file with one note per line."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from backburner import AppBlob, Backburner, Transaction
from backburner.web import Caller, Refusal, answer, multipart, require
from example_notes.importing import start

Writer = Annotated[Caller, require("jobs:write")]
LARGEST = 100_000


def routes(backburner: Backburner) -> Sequence[Any]:
    """Return the route over an open `Backburner`."""
    router = APIRouter(tags=["notes"])

    @router.post("/notes/import")
    async def take(request: Request, caller: Writer) -> Response:
        """Import the form field `file` with one note per line; return the batch."""
        owner, batch = caller.owner, ""

        def begin(tx: Transaction, blob: AppBlob) -> None:
            nonlocal batch
            batch = start(tx, owner, blob.id)

        async with multipart(request, limit=LARGEST) as form:
            async for part in form:
                if part.name == "file" and not batch:
                    # The rows of blob and batch are committed together, or neither.
                    await backburner.blobs("notes", owner).write(
                        part, keep=timedelta(days=1), also=begin
                    )
        if not batch:
            raise Refusal(400, "NO_FILE", "the form has no field `file`")
        return answer({"batch": batch}, 202)

    return router.routes
