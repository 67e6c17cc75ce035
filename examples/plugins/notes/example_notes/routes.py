"""The routes of `notes`."""

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import uuid4

import sqlalchemy as sa
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from backburner import Backburner, Transaction, View
from backburner.web import (
    Caller,
    OffsetQuery,
    Refusal,
    answer,
    offset_page,
    read,
    require,
)
from example_notes import tables
from example_notes.settings import NotesSettings
from example_notes.tables import notes
from example_notes.work import count

Writer = Annotated[Caller, require("jobs:write")]
Reader = Annotated[Caller, require("jobs:read")]


class NewNote(BaseModel):
    """A note as it is sent."""

    text: str


def routes(house: Backburner) -> Sequence[Any]:
    """Return the routes over an open `Backburner`."""
    router, settings = APIRouter(tags=["notes"]), house.settings_of(NotesSettings)

    @router.post("/notes")
    async def create(request: Request, caller: Writer) -> Response:
        """Store a note, and have its words counted."""
        wanted = await read(request, NewNote)
        if len(wanted.text) > settings.longest:
            raise Refusal(
                400, "NOTE_TOO_LONG", f"at most {settings.longest} characters"
            )
        owner, note = caller.owner, f"note_{uuid4().hex}"

        def store(tx: Transaction) -> None:
            row = {"id": note, "tenant": owner.tenant, "user": owner.user}
            extra = {"length": len(wanted.text)}
            tables.add(tx.connection, {**row, "text": wanted.text, "extra": extra})
            tx.submit(count, note, owner=owner)

        await house.transact(store)
        return answer({"id": note})

    @router.get("/notes")
    async def find(request: Request, caller: Reader) -> Response:
        """List one's notes, or those with the words of `?q=`."""
        words = request.query_params.get("q", "")[:100].replace('"', "")
        owner = caller.owner

        def look(view: View) -> dict[str, Any]:
            mine = notes.c.tenant == owner.tenant, notes.c.user == owner.user
            query = sa.select(notes).where(*mine).order_by(notes.c.id)
            if words:
                ids = tables.found(view.connection, words)
                query = query.where(notes.c.id.in_(ids))
            page = offset_page(view, query, OffsetQuery())
            items = [{"text": row.text, "words": row.words} for row in page.rows]
            return {"items": items, "total": page.total}

        return answer(await house.read(look))

    return router.routes
