"""Rows to values."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import sqlalchemy as sa

from backburner.domain.errors import Problem
from backburner.domain.event import Event
from backburner.domain.job import Job, JobState, Owner
from backburner.stores.tables import jobs

JOB_COLUMNS: Sequence[sa.Column[Any]] = (
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
)

LARGE = frozenset({"input", "output"})
"""What only `find` reads."""
LISTED_COLUMNS = tuple(c for c in JOB_COLUMNS if c.name not in LARGE)


def as_job(row: Any) -> Job:
    """Build a job from a row of `JOB_COLUMNS`."""
    values = row._mapping  # noqa: SLF001 - SQLAlchemy's public name for it
    return _job({c.name: values[c] for c in JOB_COLUMNS})


def as_listed(row: Any) -> Job:
    """Build a job from a row of `LISTED_COLUMNS`; its input and output are left out."""
    values = row._mapping  # noqa: SLF001 - SQLAlchemy's public name for it
    return _job({"input": "", **{c.name: values[c] for c in LISTED_COLUMNS}})


def _job(columns: dict[str, Any]) -> Job:
    owner = Owner(columns.pop("tenant"), columns.pop("user"))
    error, tags = columns.pop("error"), columns.pop("tags")
    return Job(
        **columns | {"state": JobState(columns["state"])},
        owner=owner,
        error=Problem(**orjson.loads(error)) if error else None,
        tags=tuple(tags.split("\n")) if tags else (),
    )


def as_events(rows: Iterable[Any]) -> list[Event]:
    """Build events from rows in the order of their fields."""
    return [
        Event(seq, job_id, n, kind, at, orjson.loads(data) if data else {})
        for seq, job_id, n, kind, at, data in rows
    ]
