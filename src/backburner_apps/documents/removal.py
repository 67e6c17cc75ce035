"""Deletes and cancels files and batches, with their jobs, chunks and contents."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import sqlalchemy as sa

from backburner import (
    Backburner,
    CallerError,
    Context,
    Owner,
    Transaction,
    capability,
    erase_rows,
)
from backburner_apps.documents import batches as book
from backburner_apps.documents import changes, chunk_store, states
from backburner_apps.documents.limits import UPKEEP_QUEUE
from backburner_apps.documents.shapes import Leftovers
from backburner_apps.documents.tables import Row, batches, files

SOME: Final = 1_000
"""Maximum number of chunks that one transaction deletes."""
CANCELLED: Final = "The batch was cancelled before the file was confirmed"

b, f = batches.c, files.c


def delete_file(tx: Transaction, owner: Owner, file: Row) -> bool:
    """Delete a file; its batch then has one file less, and may be complete."""
    batch = book.lock(tx, file.batch_id)
    gone = _take(tx, owner, [f.id == file.id])
    if batch is None or not gone:
        return False
    fewer = {"file_count": batch.file_count - 1, "requested": batch.requested - 1}
    tx.connection.execute(batches.update().where(b.id == batch.id).values(fewer))
    locked = book.lock(tx, batch.id)
    if locked is not None:
        book.changed(tx, locked)
    return True


def delete_batch(tx: Transaction, owner: Owner, batch_id: str) -> None:
    """Delete a batch with its files."""
    book.lock(tx, batch_id)
    _take(tx, owner, [f.batch_id == batch_id])
    tx.connection.execute(batches.delete().where(b.id == batch_id))


def cancel_batch(tx: Transaction, batch_id: str) -> None:
    """Close a batch: unconfirmed files fail, and no further files are accepted."""
    batch = book.lock(tx, batch_id)
    if batch is None or batch.completed_at is not None:
        return
    waiting = sa.select(files).where(
        f.batch_id == batch_id, f.status.in_(states.UNCONFIRMED)
    )
    # Uploads and confirmations change files without the lock of their batch.
    for file in tx.connection.execute(waiting.order_by(f.id).with_for_update()).all():
        changes.move(
            tx,
            file,
            states.FAILED,
            error=CANCELLED,
            error_code="CANCELLED",
            failed_at=tx.now(),
        )
    if batch.closed_at is None:
        close = batches.update().where(b.id == batch_id).values(closed_at=tx.now())
        tx.connection.execute(close)
    locked = book.lock(tx, batch_id)
    if locked is not None:
        book.changed(tx, locked)


async def cancel_flows(bb: Backburner, owner: Owner, flows: Sequence[str]) -> None:
    """
    Cancel the unfinished jobs of files; some may have ended.

    Raises `StoreUnavailable`: then the other jobs go on, until it is called again.
    """
    for flow in flows:
        with suppress(CallerError):
            await bb.engine.flows.cancel(flow, owner)


def flows_of(view: Any, batch_id: str) -> list[str]:
    """Return the flows of a batch's files that have not ended."""
    rows = sa.select(f.flow_id).where(
        f.batch_id == batch_id, f.flow_id.is_not(None), f.status.not_in(states.ENDED)
    )
    return list(view.connection.execute(rows).scalars())


@capability("documents.remove", queue=UPKEEP_QUEUE)
async def remove(ctx: Context, value: Leftovers) -> int:
    """Delete the chunks and contents of deleted files."""
    removed = 0
    while count := await ctx.transact(_remove_chunks, ctx.job.owner, value.files):
        removed += count
    if value.blobs:
        await ctx.app_blobs.delete(*value.blobs)
    return removed


def erase(tx: Transaction, owner: Owner, limit: int) -> int:
    """Delete rows of a user, for `backburner users erase`; return how many."""
    return (
        chunk_store.erase(tx, owner, limit)
        or erase_rows(tx, files, owner, limit)
        or erase_rows(tx, batches, owner, limit)
    )


def _remove_chunks(tx: Transaction, owner: Owner, ids: Sequence[str]) -> int:
    return chunk_store.delete_chunks(tx, owner, ids, SOME)


def _take(
    tx: Transaction, owner: Owner, which: Sequence[sa.ColumnElement[bool]]
) -> int:
    """Delete rows of files, and submit a job that deletes their chunks and contents."""
    contents = f.id, f.blob, f.text_blob
    gone = tx.connection.execute(
        files.delete().where(*which).returning(*contents)
    ).all()
    if gone:
        blobs = [blob for row in gone for blob in (row.blob, row.text_blob) if blob]
        left = Leftovers(files=[row.id for row in gone], blobs=blobs)
        tx.submit(remove, left, owner=owner)
    return len(gone)
