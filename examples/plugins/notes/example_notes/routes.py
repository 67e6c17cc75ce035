"""The routes of `notes`."""

from collections.abc import Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from backburner import Backburner, Owner, Transaction, View
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
    """A note to store."""

    text: str


class NotesQuery(OffsetQuery):
    """The query parameters `?q=&limit=&offset=`."""

    q: str = Field("", max_length=100)
    """Words to look for."""


def routes(backburner: Backburner) -> Sequence[Any]:
    """Return the routes over an open `Backburner`."""
    router, settings = APIRouter(tags=["notes"]), backburner.settings_of(NotesSettings)

    @router.post("/notes")
    async def create(request: Request, caller: Writer) -> Response:
        """Store a note and submit the job that counts its words."""
        wanted = await read(request, NewNote)
        if len(wanted.text) > settings.longest:
            raise Refusal(
                400, "NOTE_TOO_LONG", f"at most {settings.longest} characters"
            )
        owner = caller.owner

        def store(tx: Transaction) -> str:
            note = tables.add(tx, owner, wanted.text)
            tx.submit(count, note, owner=owner)
            return note

        return answer({"id": await backburner.transact(store)})

    @router.get("/notes")
    async def find(caller: Reader, asked: Annotated[NotesQuery, Query()]) -> Response:
        """List the caller's notes, or those with the words of `?q=`."""
        return answer(
            await backburner.read(lambda view: found(view, caller.owner, asked))
        )

    return router.routes


def found(view: View, owner: Owner, asked: NotesQuery) -> dict[str, Any]:
    """Return a page of an owner's notes, and their total number."""
    mine = notes.c.tenant == owner.tenant, notes.c.user == owner.user
    query = sa.select(notes).where(*mine).order_by(notes.c.id)
    words = asked.q.replace('"', "")
    if words:
        query = query.where(notes.c.id.in_(tables.found(view.connection, words)))
    page = offset_page(view, query, asked)
    items = [{"text": row.text, "words": row.words} for row in page.rows]
    return {"items": items, "total": page.total}
