"""Scheduled jobs: end uploads that never arrived and delete old dead letters."""

from typing import Final

import sqlalchemy as sa

from backburner import Context, Owner, Schedule, Transaction, capability
from backburner_apps.documents import batches as book
from backburner_apps.documents import changes, pgvector, states
from backburner_apps.documents.limits import UPKEEP_QUEUE
from backburner_apps.documents.settings import DocumentsSettings
from backburner_apps.documents.tables import batches, files

ITSELF: Final = Owner("default", "documents")
SOME: Final = 200
"""Maximum number of files or batches that one run ends; the next run continues."""
DAY: Final = 24 * 60 * 60 * 1000
EXPIRED: Final = "The file was not uploaded and confirmed before its URL expired"

b, f = batches.c, files.c


@capability("documents.end-overdue", queue=UPKEEP_QUEUE)
async def end_overdue(ctx: Context, _value: None) -> int:
    """End expired uploads and delete old dead letters; return the number of ends."""
    settings = ctx.settings_of(DocumentsSettings)
    ended = 0
    for file_id in await ctx.transact(_overdue_files):
        ended += await ctx.transact(_expire, file_id)
    span = round(settings.url_seconds * 1000)
    for batch_id in await ctx.transact(_overdue_batches, span):
        ended += await ctx.transact(_close, batch_id)
    await ctx.transact(_forget, round(settings.dead_letter_days * DAY))
    return ended


SCHEDULES: Final = (
    Schedule("documents-end-overdue", "*/30 * * * * *", end_overdue, owner=ITSELF),
    Schedule(
        "documents-index-vectors", "*/10 * * * *", pgvector.index_vectors, owner=ITSELF
    ),
)


def _overdue_files(tx: Transaction) -> list[str]:
    late = f.status.in_(states.UNCONFIRMED), f.expires_at <= tx.now()
    return list(
        tx.connection.execute(sa.select(f.id).where(*late).limit(SOME)).scalars()
    )


def _overdue_batches(tx: Transaction, span: int) -> list[str]:
    late = (
        b.completed_at.is_(None),
        b.closed_at.is_(None),
        b.requested < b.file_count,
        b.requested_at <= tx.now() - span,
    )
    return list(
        tx.connection.execute(sa.select(b.id).where(*late).limit(SOME)).scalars()
    )


def _expire(tx: Transaction, file_id: str) -> bool:
    found = changes.find(tx, file_id)
    batch = None if found is None else book.lock(tx, found.batch_id)
    file = changes.find(tx, file_id)
    if batch is None or file is None or file.status not in states.UNCONFIRMED:
        return False
    failure = {"error": EXPIRED, "error_code": "UPLOAD_EXPIRED"}
    if not changes.move(tx, file, states.FAILED, **failure, failed_at=tx.now()):
        return False
    book.changed(tx, batch)
    return True


def _close(tx: Transaction, batch_id: str) -> bool:
    batch = book.lock(tx, batch_id)
    if batch is None or batch.closed_at is not None:
        return False
    tx.connection.execute(
        batches.update().where(b.id == batch_id).values(closed_at=tx.now())
    )
    closed = book.lock(tx, batch_id)
    if closed is not None:
        book.changed(tx, closed)
    return True


def _forget(tx: Transaction, span: int) -> None:
    old = f.dead_job.is_not(None), f.failed_at <= tx.now() - span
    tx.connection.execute(files.update().where(*old).values(dead_job=None))
