"""
Reads and changes batches, and publishes their progress.

A transaction that changes a file locks its batch first and then calls `changed`, which
submits a job. The job publishes `batch:progress`, at most once a second, or completes
the batch.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa

from backburner import Context, Owner, Transaction, View, capability
from backburner.web import log
from backburner_apps.documents import states
from backburner_apps.documents.limits import COMPLETION_QUEUE, policy
from backburner_apps.documents.shapes import BatchRef
from backburner_apps.documents.tables import Row, batches, files

BETWEEN: Final = 1_000
"""Minimum time between two `batch:progress` of one batch, in milliseconds."""
FORGOTTEN: Final = 60_000
"""After this time a job that should have published progress counts as lost."""

b, f = batches.c, files.c


def topic(batch_id: str) -> str:
    """Return the topic of a batch's events."""
    return f"batch:{batch_id}"


def lock(tx: Transaction, batch_id: str) -> Row | None:
    """Return a batch's row; the row is locked until the transaction ends."""
    statement = sa.select(batches).where(b.id == batch_id).with_for_update()
    found: Row | None = tx.connection.execute(statement).one_or_none()
    return found


def owner_of(row: Row) -> Owner:
    """Return the owner of a batch or file."""
    return Owner(row.tenant, row.user)


def statuses(view: View, batch_id: str) -> dict[str, int]:
    """Count the files of a batch by state."""
    counted = (
        sa.select(f.status, sa.func.count())
        .where(f.batch_id == batch_id)
        .group_by(f.status)
    )
    return {row.status: row[1] for row in view.connection.execute(counted)}


def summary(batch: Row, counts: Mapping[str, int]) -> dict[str, int]:
    """Count a batch's files by state; after closing, missing files count as failed."""
    by_state = {name: counts.get(name, 0) for name in states.COUNTED}
    if batch.closed_at is not None:
        by_state["failed"] += _missing(batch, counts)
    return {"total": batch.file_count, **by_state}


def is_over(batch: Row, counts: Mapping[str, int]) -> bool:
    """Return whether every file of a batch has ended."""
    total = summary(batch, counts)
    return bool(total["ready"] + total["failed"] >= batch.file_count)


def status(batch: Row, counts: Mapping[str, int]) -> str:
    """Return the state of a batch."""
    if batch.completed_at is not None:
        return states.COMPLETED
    is_begun = any(counts.get(name) for name in states.COUNTED)
    is_begun = is_begun or batch.closed_at is not None
    return states.PROCESSING if is_begun else states.PENDING


def changed(tx: Transaction, batch: Row) -> None:
    """Schedule the progress event or the completion of a locked batch."""
    counts = statuses(tx, batch.id)
    over = is_over(batch, counts)
    if batch.completed_at is not None and not over:
        _update(tx, batch.id, completed_at=None)
    now = tx.now()
    is_waiting = batch.progress_due is not None and batch.progress_due > now - FORGOTTEN
    due = max(now, (batch.progress_at or 0) + BETWEEN)
    if over and batch.completed_at is None:
        _update(tx, batch.id, generation=batch.generation + 1)
        _follow(tx, complete, batch, due - now, batch.generation + 1)
    elif not over and not is_waiting:
        _update(tx, batch.id, progress_due=due)
        _follow(tx, report, batch, due - now, batch.generation)


def _follow(tx: Transaction, job: Any, batch: Row, delay: int, generation: int) -> None:
    name = topic(batch.id) if job is complete else f"progress:{batch.id}"
    tx.submit(
        job,
        BatchRef(batch_id=batch.id, generation=generation),
        owner=owner_of(batch),
        delay=timedelta(milliseconds=delay),
        tags=[name],
    )


@capability("documents.report-batch", queue=COMPLETION_QUEUE, retry=policy(1.0))
async def report(ctx: Context, value: BatchRef) -> bool:
    """Publish the progress of a batch."""
    return await ctx.transact(_report, value)


@capability("documents.complete-batch", queue=COMPLETION_QUEUE, retry=policy(1.0))
async def complete(ctx: Context, value: BatchRef) -> dict[str, int] | None:
    """Complete a batch all of whose files have ended, and publish its summary."""
    ends = await ctx.transact(_complete, value)
    if ends is not None:
        log.info("Batch processing completed", batchId=value.batch_id, **ends)
    return ends


def _report(tx: Transaction, value: BatchRef) -> bool:
    batch = lock(tx, value.batch_id)
    if batch is None or batch.progress_due is None:
        return False
    counts = statuses(tx, batch.id)
    if is_over(batch, counts):  # `complete` publishes the last one
        _update(tx, batch.id, progress_due=None)
        return False
    _publish_progress(tx, batch, counts)
    return True


def _complete(tx: Transaction, value: BatchRef) -> dict[str, int] | None:
    batch = lock(tx, value.batch_id)
    if batch is None or batch.generation != value.generation:
        return None
    counts = statuses(tx, batch.id)
    if batch.completed_at is not None or not is_over(batch, counts):
        return None
    _publish_progress(tx, batch, counts)
    _update(tx, batch.id, completed_at=tx.now())
    by_state = summary(batch, counts)
    ends = {name: by_state[name] for name in ("total", "ready", "failed")}
    data = {"batchId": batch.id, "summary": ends}
    tx.publish(topic(batch.id), "batch:completed", data, to=owner_of(batch))
    return ends


def _publish_progress(tx: Transaction, batch: Row, counts: Mapping[str, int]) -> None:
    data = {"batchId": batch.id, **summary(batch, counts)}
    tx.publish(topic(batch.id), "batch:progress", data, to=owner_of(batch))
    _update(tx, batch.id, progress_at=tx.now(), progress_due=None)


def _missing(batch: Row, counts: Mapping[str, int]) -> int:
    return max(0, int(batch.file_count) - sum(counts.values()))


def _update(tx: Transaction, batch_id: str, **values: Any) -> None:
    tx.connection.execute(batches.update().where(b.id == batch_id).values(values))
