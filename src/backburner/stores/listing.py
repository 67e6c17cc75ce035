"""Reads whose shape varies, in SQLAlchemy Core; and a few cold ones."""

from collections.abc import Sequence

import sqlalchemy as sa

from backburner.domain.job import WAITING, Instant, Job, JobState, Owner
from backburner.ports.store import FailureGroup, JobFilter, WorkerInfo
from backburner.stores.rows import JOB_COLUMNS, LISTED_COLUMNS, as_job, as_listed
from backburner.stores.tables import jobs as job_table
from backburner.stores.tables import workers as worker_table

c = job_table.c

# Built once: naming thirty columns takes longer than many a query.
SELECT_JOBS = sa.select(*JOB_COLUMNS)
SELECT_LISTED = sa.select(*LISTED_COLUMNS)


def find(connection: sa.Connection, ids: Sequence[str]) -> list[Job]:
    """Return the jobs with these ids."""
    rows = connection.execute(SELECT_JOBS.where(c.id.in_(ids)))
    return [as_job(row) for row in rows]


def jobs(
    connection: sa.Connection, where: JobFilter, before: int | None, limit: int
) -> list[Job]:
    """Return a page of jobs, newest first."""
    seq = _number(where)
    query = SELECT_LISTED.where(*_conditions(where))
    if before is not None:
        query = query.where(seq < before)
    return _listed(connection, query.order_by(seq.desc()).limit(limit))


def _number(where: JobFilter) -> sa.ColumnElement[int]:
    if where.state in _FEW:
        # The plus has them found by their partial index and sorted: walking back
        # through the numbers would read the whole history for a handful.
        return sa.literal_column("+jobs.seq", sa.BigInteger)
    return c.seq


_FEW = frozenset({JobState.BLOCKED, JobState.RUNNING, JobState.FAILED})


def orphans(connection: sa.Connection, limit: int) -> list[Job]:
    """Return running jobs whose worker is not enlisted."""
    enlisted = sa.select(worker_table.c.id)
    query = SELECT_LISTED.where(sa.text("state = 'running'"), c.worker.not_in(enlisted))
    # The order of the partial index jobs_running, which serves.
    return _listed(connection, query.order_by(c.worker, c.seq).limit(limit))


def overdue(connection: sa.Connection, now: Instant, limit: int) -> list[Job]:
    """Return waiting jobs whose time is over."""
    # Literals, so that the partial index jobs_expiring serves.
    waiting = sa.text("state IN ('blocked','scheduled','queued')")
    query = SELECT_LISTED.where(c.expires_at.is_not(None), c.expires_at <= now, waiting)
    return _listed(connection, query.order_by(c.expires_at).limit(limit))


def failures(connection: sa.Connection, owner: Owner, limit: int) -> list[FailureGroup]:
    """Group an owner's dead letters by fingerprint."""
    last_at = sa.func.max(c.finished_at)
    query = (
        sa.select(
            c.fingerprint,
            sa.func.min(c.capability),
            sa.func.min(c.error_code),
            sa.func.count(),
            sa.func.min(c.finished_at),
            last_at,
            sa.func.max(c.id),
        )
        .where(
            sa.text("state = 'failed'"), c.tenant == owner.tenant, c.user == owner.user
        )
        .group_by(c.fingerprint)
        .order_by(last_at.desc())
        .limit(limit)
    )
    return [FailureGroup(*row) for row in connection.execute(query)]


def dead_letters(connection: sa.Connection) -> int:
    """Count what the partial index of failed jobs holds."""
    query = sa.select(sa.func.count()).where(sa.text("state = 'failed'"))
    return int(connection.execute(query.select_from(job_table)).scalar_one())


def depths(
    connection: sa.Connection,
) -> list[tuple[str, JobState, int, Instant | None]]:
    """Count live jobs by queue and state: one partial index each, no history."""
    counted: list[tuple[str, JobState, int, Instant | None]] = []
    for state in (*sorted(WAITING), JobState.RUNNING):
        query = (
            sa.select(c.queue, sa.func.count(), sa.func.min(c.rank))
            .where(sa.text(f"state = '{state}'"))
            .group_by(c.queue)
        )
        for queue, count, rank in connection.execute(query).all():
            is_queued = state is JobState.QUEUED
            oldest = _ready_at(connection, queue, rank) if is_queued else None
            counted.append((queue, state, count, oldest))
    return counted


def _ready_at(connection: sa.Connection, queue: str, rank: int) -> Instant | None:
    query = sa.select(sa.func.min(c.ready_at)).where(
        sa.text("state = 'queued'"), c.queue == queue, c.rank == rank
    )
    return connection.execute(query).scalar()


def workers(connection: sa.Connection) -> list[WorkerInfo]:
    """Return who is enlisted, the oldest first."""
    w = worker_table.c
    query = sa.select(w.id, w.host, w.pid, w.slots, w.queues, w.started_at).order_by(
        w.started_at, w.id
    )
    return [
        WorkerInfo(id_, host, pid, slots, tuple(queues.split("\n")), started_at)
        for id_, host, pid, slots, queues, started_at in connection.execute(query)
    ]


def _conditions(where: JobFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if where.owner is not None:
        conditions += [c.tenant == where.owner.tenant, c.user == where.owner.user]
    if where.state is not None:
        conditions.append(sa.literal_column(f"state = '{where.state}'"))
    if where.capability is not None:
        conditions.append(c.capability == where.capability)
    if where.queue is not None:
        conditions.append(c.queue == where.queue)
    if where.fingerprint is not None:
        conditions.append(c.fingerprint == where.fingerprint)
    if where.since is not None:
        conditions.append(c.created_at >= where.since)
    if where.tag is not None:
        padded = "\n" + c.tags + "\n"
        conditions.append(padded.contains(f"\n{where.tag}\n", autoescape=True))
    return conditions


def _listed(
    connection: sa.Connection, query: sa.Select[tuple[object, ...]]
) -> list[Job]:
    return [as_listed(row) for row in connection.execute(query)]
