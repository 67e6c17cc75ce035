"""Dead letters: files that failed in a stage, with the job to retry."""

from typing import Any

import sqlalchemy as sa

from backburner import (
    Backburner,
    BackburnerError,
    IllegalTransition,
    JobNotFound,
    Owner,
    Tenant,
    Transaction,
    View,
)
from backburner.web import Caller, OffsetPage, OffsetQuery, log, offset_page, time
from backburner_apps.documents import batches, changes, states
from backburner_apps.documents.tables import Row, files

f = files.c
NOT_FAILED = "the file is not failed any more"


def listed(view: View, seen: Owner | Tenant, asked: OffsetQuery) -> OffsetPage:
    """Return a page of the dead letters that a caller may see, newest first."""
    rows = sa.select(files).where(_visible(seen)).order_by(f.failed_at.desc(), f.id)
    return offset_page(view, rows, asked)


def find(view: View, seen: Owner | Tenant, file_id: str) -> Row | None:
    """Return one dead letter."""
    statement = sa.select(files).where(_visible(seen), f.id == file_id)
    found: Row | None = view.connection.execute(statement).one_or_none()
    return found


def every(view: View, seen: Owner | Tenant, limit: int) -> list[Row]:
    """Return the oldest dead letters whose files are failed now."""
    failed = f.status == states.FAILED
    rows = sa.select(files).where(_visible(seen), failed)
    return list(view.connection.execute(rows.order_by(f.failed_at).limit(limit)))


async def retry(bb: Backburner, caller: Caller, file: Row) -> None:
    """
    Retry the stage in which a file failed.

    Raises `IllegalTransition` if it is being retried already.
    """
    if file.status != states.FAILED:
        raise IllegalTransition(NOT_FAILED)
    await bb.engine.retry(file.dead_job, batches.owner_of(file))
    by = caller.owner.user
    to = states.resumed(file.stage)
    await bb.transact(_resume, file, to, by)
    log.info("DLQ entry retried", fileId=file.id, stage=file.stage, resetState=to)


async def retry_one(bb: Backburner, caller: Caller, file: Row) -> dict[str, Any]:
    """Retry one of several files; an error becomes part of its result."""
    try:
        await retry(bb, caller, file)
    except (IllegalTransition, JobNotFound) as error:
        return {"fileId": file.id, "success": False, "error": str(error)}
    return {"fileId": file.id, "success": True}


async def entry(bb: Backburner, caller: Caller, row: Row) -> dict[str, Any]:
    """Return a dead letter as JSON; with the stack trace if the caller may see it."""
    told = {
        "fileId": row.id,
        "batchId": row.batch_id,
        "fileName": row.name,
        "stage": row.stage,
        "error": row.error,
        "code": row.error_code,
        "attempts": row.attempts,
        "failedAt": time(row.failed_at),
    }
    if row.retried_at is not None:
        told["retriedAt"] = time(row.retried_at)
    if row.retried_by is not None:
        told["retriedBy"] = row.retried_by
    if caller.sees_traces and (stack := await _stack(bb, row)):
        told["stack"] = stack
    return told


async def _stack(bb: Backburner, row: Row) -> str | None:
    try:
        job = await bb.engine.find(row.dead_job, batches.owner_of(row))
        attempts = await bb.engine.attempts(job)
    except BackburnerError:
        return None
    return attempts[-1].trace if attempts else None


def _visible(seen: Owner | Tenant) -> sa.ColumnElement[bool]:
    whose = f.tenant == seen.tenant
    if isinstance(seen, Owner):
        whose = sa.and_(whose, f.user == seen.user)
    return sa.and_(whose, f.dead_job.is_not(None))


def _resume(tx: Transaction, seen: Row, to: str, by: str) -> None:
    """
    Show the retry immediately, and record who requested it.

    The engine's own event makes the same change; the second of the two has no effect.
    """
    batch = batches.lock(tx, seen.batch_id)
    file = changes.find(tx, seen.id)
    if batch is None or file is None:
        return
    if file.version != seen.version:
        changes.update(tx, file, retried_by=by)
        return
    again = {"retried_at": tx.now(), "retried_by": by, "attempts": 0}
    changes.move(tx, file, to, **again)
    batches.changed(tx, batch)
