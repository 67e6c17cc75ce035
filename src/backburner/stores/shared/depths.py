"""How many jobs each queue has, by state."""

import sqlalchemy as sa

from backburner.domain.jobs.job import WAITING, Instant, JobState
from backburner.ports.store.maintenance import JobFilter
from backburner.stores.shared.job_filters import conditions_of
from backburner.stores.tables import jobs as job_table

c = job_table.c


def depths(
    connection: sa.Connection,
) -> list[tuple[str, JobState, int, Instant | None]]:
    """Count live jobs by queue and state: one partial index each, no history."""
    counted = sa.union_all(
        *(
            sa.select(
                sa.literal(state.value), c.queue, sa.func.count(), sa.func.min(c.seq)
            )
            .where(*conditions_of(JobFilter(state=state)))
            .group_by(c.queue)
            for state in (*sorted(WAITING), JobState.WAITING, JobState.RUNNING)
        )
    )
    return [
        (
            queue,
            JobState(state),
            count,
            _ready_at(connection, first) if state == JobState.QUEUED else None,
        )
        for state, queue, count, first in connection.execute(counted).all()
    ]


# From one queue's name to the next, so that no queue is counted beyond the cap. The
# literal state lets the partial index jobs_ready serve.
COUNT_WAITING = sa.text("""
WITH RECURSIVE names (queue) AS (
  SELECT min(queue) FROM jobs WHERE state = 'queued'
  UNION ALL
  SELECT (SELECT min(jobs.queue) FROM jobs
           WHERE jobs.state = 'queued' AND jobs.queue > names.queue)
    FROM names WHERE names.queue IS NOT NULL
)
SELECT names.queue,
       (SELECT count(*) FROM (
          SELECT 1 FROM jobs
           WHERE jobs.state = 'queued' AND jobs.queue = names.queue LIMIT :cap
        ) AS queued)
  FROM names WHERE names.queue IS NOT NULL
""")


def waiting(connection: sa.Connection, cap: int) -> dict[str, int]:
    """Count queued jobs by queue, up to a cap each."""
    rows = connection.execute(COUNT_WAITING, {"cap": cap}).all()
    return {str(queue): int(count) for queue, count in rows}


def _ready_at(connection: sa.Connection, seq: int) -> Instant | None:
    query = sa.select(c.ready_at).where(sa.text("state = 'queued'"), c.seq == seq)
    return connection.execute(query).scalar()
