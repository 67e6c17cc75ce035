"""The jobs of `notes`."""

from typing import Any

import sqlalchemy as sa

from backburner import Context, Counter, Owner, Transaction, View, capability
from backburner.web import log
from example_notes.tables import notes

counted = Counter("notes_counted_total", "Notes whose words were counted.")


@capability("notes.count", queue="notes")
async def count(ctx: Context, note_id: str) -> int:
    """Count the words of a note, store the number and notify its owner."""

    def read(view: View) -> Any:
        mine = sa.select(notes).where(notes.c.id == note_id)
        return view.connection.execute(mine).one()

    note = await ctx.read(read)
    words = len(note.text.split())

    def store(tx: Transaction) -> None:
        change = notes.update().where(notes.c.id == note_id)
        tx.connection.execute(change.values(words=words))
        owner = Owner(note.tenant, note.user)
        tx.publish("notes", "note:counted", {"id": note_id, "words": words}, to=owner)

    await ctx.transact(store)
    counted.inc()
    log.info("note counted", noteWords=words)
    return words
