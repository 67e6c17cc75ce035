"""Converts rows to domain values."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import sqlalchemy as sa

from backburner.domain.errors import Problem
from backburner.domain.events.event import FAILED, RETRYING, Event
from backburner.domain.jobs.job import SUSPENDED, Job, JobState, Owner, Wait, WaitReason
from backburner.stores.shared.settling import TRACE
from backburner.stores.tables import batches, flows, jobs

FLOW_ID = sa.select(flows.c.id).where(flows.c.seq == jobs.c.flow).scalar_subquery()
BATCH_ID = (
    sa.select(batches.c.id).where(batches.c.seq == jobs.c.batch).scalar_subquery()
)

JOB_COLUMNS: Sequence[sa.Column[Any] | sa.Label[Any]] = (
    jobs.c.seq,
    jobs.c.id,
    jobs.c.tenant,
    jobs.c.user,
    jobs.c.capability,
    jobs.c.queue,
    jobs.c.state,
    jobs.c.priority,
    jobs.c.generation,
    jobs.c.attempt,
    jobs.c.max_attempts,
    jobs.c.crashes,
    jobs.c.throttled,
    jobs.c.events,
    jobs.c.input,
    jobs.c.created_at,
    jobs.c.token,
    jobs.c.worker,
    jobs.c.run_at,
    jobs.c.start_by,
    jobs.c.deadline,
    jobs.c.started_at,
    jobs.c.finished_at,
    jobs.c.output,
    jobs.c.error,
    jobs.c.fingerprint,
    jobs.c.progress,
    jobs.c.tags,
    jobs.c.request_id,
    jobs.c.body_hash,
    jobs.c.flow,
    jobs.c.step,
    jobs.c.batch,
    jobs.c.callback,
    jobs.c.traceparent,
    jobs.c.tokens,
    jobs.c.model,
    jobs.c.share,
    jobs.c.holds,
    FLOW_ID.label("flow_id"),
    BATCH_ID.label("batch_id"),
    jobs.c.wait,
    jobs.c.metadata,
)

LARGE = frozenset({"input", "output"})
"""Columns that only `find` reads."""
LISTED_COLUMNS = tuple(c for c in JOB_COLUMNS if c.name not in LARGE)
# Names of columns are not the interned strings that Python compares by identity when it
# passes keyword arguments: a call with forty of them took twice as long.
_NAMES = tuple(sys.intern(str(c.name)) for c in JOB_COLUMNS)
_LISTED_NAMES = tuple(sys.intern(str(c.name)) for c in LISTED_COLUMNS)
_STATES = {state.value: state for state in JobState}


def as_job(row: Any) -> Job:
    """Build a job from a row of `JOB_COLUMNS`."""
    return _job(dict(zip(_NAMES, row, strict=True)))


def as_listed(row: Any) -> Job:
    """Build a job from a row of `LISTED_COLUMNS`; its input and output are left out."""
    columns = dict(zip(_LISTED_NAMES, row, strict=True))
    columns["input"] = ""
    return _job(columns)


def _job(columns: dict[str, Any]) -> Job:
    owner = Owner(columns.pop("tenant"), columns.pop("user"))
    error, tags = columns.pop("error"), columns.pop("tags")
    metadata, wait = columns.pop("metadata"), columns.pop("wait")
    state = columns["state"] = _STATES[columns["state"]]
    is_suspended = wait is not None and state in SUSPENDED
    return Job(
        **columns,
        owner=owner,
        wait=as_wait(wait) if is_suspended else None,
        error=Problem(**orjson.loads(error)) if error else None,
        tags=tuple(tags.split("\n")) if tags else (),
        metadata=orjson.loads(metadata) if metadata else None,
    )


def as_wait(text: str) -> Wait:
    """Convert a stored wait."""
    reason, name, until = orjson.loads(text)
    return Wait(WaitReason(reason), name, until)


def as_events(rows: Iterable[Any]) -> list[Event]:
    """Build events from rows in the order of their fields, with a topic if present."""
    return [
        Event(seq, subject, n, kind, at, *_told(kind, data, *topic), *topic)
        for seq, subject, n, kind, at, data, *topic in rows
    ]


def _told(
    kind: str, text: str | None, topic: str | None = None
) -> tuple[dict[str, Any], str | None]:
    """Return an event's data and, separately, its stack trace, which few may see."""
    data = orjson.loads(text) if text else {}
    has_trace = kind in _ENDS and topic is None
    return data, data.pop(TRACE, None) if has_trace else None


_ENDS = frozenset({RETRYING, FAILED})
"""The types of events that may have a stack trace."""
