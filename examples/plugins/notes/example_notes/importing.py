"""The import of a file with one note per line: a batch that grows while it runs."""

from typing import Any

from pydantic import BaseModel

from backburner import Context, Owner, Tenant, Transaction, capability
from example_notes import tables
from example_notes.settings import NotesSettings
from example_notes.work import count

MOST_NOTES = 1_000


class Import(BaseModel):
    """A file to split, and the batch for its notes."""

    batch: str
    blob: str


@capability("notes.split", queue="notes")
async def split(ctx: Context, wanted: Import) -> int:
    """Store the lines of a file as notes; they are the last members of the batch."""
    content = b"".join([piece async for piece in ctx.app_blobs.read(wanted.blob)])
    text = content.decode(errors="replace").replace("\0", "")
    longest = ctx.settings_of(NotesSettings).longest
    lines = [line[:longest] for line in text.splitlines() if line.strip()][:MOST_NOTES]

    def store(tx: Transaction) -> None:
        ids = [tables.add(tx, ctx.job.owner, line) for line in lines]
        tx.add_to_batch(wanted.batch, [(count, note) for note in ids], seal=True)
        ctx.app_blobs.remove(tx, [wanted.blob])

    ctx.at_settlement(store)
    return len(lines)


@capability("notes.imported", queue="notes")
async def imported(ctx: Context, batch: dict[str, Any]) -> None:
    """Notify all users of the tenant that all notes of a file are counted."""
    data, tenant = {"batch": batch["id"]}, Tenant(ctx.job.owner.tenant)
    await ctx.transact(
        lambda tx: tx.publish("notes", "notes:imported", data, to=tenant)
    )


def start(tx: Transaction, owner: Owner, blob: str) -> str:
    """Open a batch whose first member splits the file; return the batch's id."""
    done = {"capability": imported.name}
    batch = tx.open_batch(sealed=False, completion=done, owner=owner).id
    wanted = Import(batch=batch, blob=blob)
    tx.add_to_batch(batch, [(split, wanted)], owner=owner)
    return batch
