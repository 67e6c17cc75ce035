"""Dead letters: jobs that failed permanently, grouped by cause and counted."""

from collections.abc import Sequence
from typing import Final

import orjson
import sqlalchemy as sa

from backburner.domain.jobs.job import Visibility
from backburner.ports.store.maintenance import FailureGroup
from backburner.stores.shared.job_filters import DEAD
from backburner.stores.shared.paging import seen_by, unindexed
from backburner.stores.tables import jobs as job_table

c = job_table.c

DEAD_REACH: Final = 10_000
"""How many dead letters are looked at: they lie far apart."""


def failures(
    connection: sa.Connection, owner: Visibility, limit: int
) -> list[FailureGroup]:
    """
    Group an owner's dead letters by fingerprint, up to `DEAD_COUNTED` of them.

    Beyond the newest `DEAD_REACH` only the first and the last job of each group are
    looked at; the others are counted in the index.
    """
    mine = (DEAD, *seen_by(owner, c))
    seq = unindexed(job_table)
    newest_dead = sa.select(c.seq).where(*mine).order_by(seq.desc()).limit(DEAD_REACH)
    last_at = sa.func.max(c.finished_at)
    query = (
        sa.select(
            sa.func.sum(sa.func.count()).over(),
            c.fingerprint,
            sa.func.min(c.capability),
            sa.func.min(c.error_code),
            sa.func.count(),
            sa.func.min(c.finished_at),
            last_at,
            sa.func.max(c.id),
        )
        # Found by their numbers: in the order of the index they lie far apart.
        .where(c.seq.in_(newest_dead))
        .group_by(c.fingerprint)
        .order_by(last_at.desc())
        .limit(limit)
    )
    rows = connection.execute(query).all()
    found = [FailureGroup(*group) for _, *group in rows]
    if rows and rows[0][0] >= DEAD_REACH:
        found = _with_older(connection, found, mine, limit)
    return _explained(connection, found) if found else []


def _explained(
    connection: sa.Connection, groups: Sequence[FailureGroup]
) -> list[FailureGroup]:
    """Add the error message of each group's sample."""
    samples = [group.sample_id for group in groups]
    query = sa.select(c.id, c.error).where(c.id.in_(samples), c.error.is_not(None))
    messages = {
        job: str(orjson.loads(error)["message"])
        for job, error in connection.execute(query)
    }
    return [
        group._replace(message=messages.get(group.sample_id, "")) for group in groups
    ]


def _with_older(
    connection: sa.Connection,
    found: Sequence[FailureGroup],
    mine: Sequence[sa.ColumnElement[bool]],
    limit: int,
) -> list[FailureGroup]:
    """Count what is older as well, and add groups that are older as a whole."""
    some = sa.select(c.fingerprint, c.seq).where(*mine).limit(DEAD_COUNTED).subquery()
    first, last = sa.func.min(some.c.seq), sa.func.max(some.c.seq)
    counted = sa.select(some.c.fingerprint, sa.func.count(), first, last)
    query = counted.group_by(some.c.fingerprint).order_by(last.desc())
    ends = {mark: rest for mark, *rest in connection.execute(query)}
    groups = {group.fingerprint: group for group in found}
    older = [mark for mark in ends if mark not in groups][: limit - len(groups)]
    shown = {mark: ends[mark] for mark in (*groups, *older) if mark in ends}
    numbers = {seq for _, *both in shown.values() for seq in both}
    columns = (c.seq, c.capability, c.error_code, c.finished_at, c.id)
    read = sa.select(*columns).where(c.seq.in_(numbers), *mine)
    jobs = {row.seq: row for row in connection.execute(read)}
    for mark, (size, oldest, latest) in shown.items():
        if not {oldest, latest} <= jobs.keys():
            continue  # one was retried in between: what was found before stays
        at, job = jobs[oldest].finished_at, jobs[latest]
        known = groups.get(mark) or FailureGroup(
            *(mark, job.capability, job.error_code, size),
            *(at, job.finished_at, job.id),
        )
        groups[mark] = known._replace(size=size, first_at=min(known.first_at, at))
    return [*groups.values()]


DEAD_COUNTED: Final = 100_000
"""Dead letters beyond this many are not counted."""
COUNT_DEAD: Final = sa.text("""
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state = 'failed' LIMIT :cap) AS failed
""")


def dead_letters(connection: sa.Connection) -> int:
    """Count failed jobs by their partial index, up to `DEAD_COUNTED`."""
    return int(connection.execute(COUNT_DEAD, {"cap": DEAD_COUNTED}).scalar_one())
