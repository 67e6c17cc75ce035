"""Batches and files as clients see them."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from backburner import Owner, View
from backburner.tables import owned_by
from backburner.web import CursorPage, CursorQuery, cursor_page, time
from backburner_apps.documents import batches as book
from backburner_apps.documents import states
from backburner_apps.documents.tables import Row, batches, files

b, f = batches.c, files.c


def find_batch(view: View, owner: Owner, batch_id: str) -> Row | None:
    """Return the row of a batch of a user."""
    statement = sa.select(batches).where(b.id == batch_id, owned_by(batches, owner))
    found: Row | None = view.connection.execute(statement).one_or_none()
    return found


def batch_body(view: View, owner: Owner, batch_id: str) -> dict[str, Any] | None:
    """Return a batch of a user as JSON."""
    row = find_batch(view, owner, batch_id)
    return None if row is None else written_batch(row, book.statuses(view, row.id))


def batch_page(
    view: View, owner: Owner, asked: CursorQuery
) -> tuple[CursorPage, list[dict[str, Any]]]:
    """Return a page of a user's batches, newest first."""
    rows = sa.select(batches).where(owned_by(batches, owner))
    page = cursor_page(view, rows, b.id, asked)
    counts = _statuses(view, [row.id for row in page.rows])
    return page, [written_batch(row, counts[row.id]) for row in page.rows]


def file_page(
    view: View, owner: Owner, batch_id: str | None, asked: CursorQuery
) -> CursorPage:
    """Return a page of a user's files, of one batch or of all, newest first."""
    rows = sa.select(files).where(owned_by(files, owner))
    if batch_id is not None:
        rows = rows.where(f.batch_id == batch_id)
    return cursor_page(view, rows, f.id, asked)


def written_batch(row: Row, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return a batch as JSON."""
    summary = book.summary(row, counts)
    body = {
        "batchId": row.id,
        "status": book.status(row, counts),
        "fileCount": row.file_count,
        "processedCount": summary["ready"] + summary["failed"],
        "summary": summary,
        "createdAt": time(row.created_at),
    }
    if row.completed_at is not None:
        body["completedAt"] = time(row.completed_at)
    return body


def written_file(row: Row) -> dict[str, Any]:
    """Return a file as JSON."""
    body = {
        "fileId": row.id,
        "batchId": row.batch_id,
        "fileName": row.name,
        "contentType": row.content_type,
        "size": row.size,
        "status": row.status,
        "createdAt": time(row.created_at),
        "updatedAt": time(row.updated_at),
    }
    if row.status == states.FAILED:
        failure = {"stage": row.stage, "error": row.error, "errorCode": row.error_code}
        body |= {name: value for name, value in failure.items() if value is not None}
    if row.chunk_count is not None:
        body["chunkCount"] = row.chunk_count
    if row.images is not None:
        body["extractedImages"] = row.images
    if row.ocr not in (None, "none"):
        body["ocr"] = row.ocr
    return body


def _statuses(view: View, ids: Sequence[str]) -> dict[str, dict[str, int]]:
    counted = (
        sa.select(f.batch_id, f.status, sa.func.count())
        .where(f.batch_id.in_(ids))
        .group_by(f.batch_id, f.status)
    )
    found: dict[str, dict[str, int]] = {batch_id: {} for batch_id in ids}
    for batch_id, status, count in view.connection.execute(counted):
        found[batch_id][status] = count
    return found
