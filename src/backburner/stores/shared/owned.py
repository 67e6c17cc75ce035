"""
Finds the jobs of an owner or a tenant by their first events.

The first event of a job is written with it, has its owner and never changes. So, unlike
an index on `jobs`, its index costs nothing at claims and settlements.

A process of an earlier release writes events without an owner, which upkeep adds. While
there are first events without one, jobs are found by their own columns: without an
index, but completely.
"""

from typing import Any

import sqlalchemy as sa

from backburner.domain.jobs.job import Visibility
from backburner.stores.shared.paging import seen_by
from backburner.stores.tables import events, jobs

e = events.c

# Literals, so that the partial index events_first_by_owner is used.
FIRST = sa.text("events.n = 1 AND events.job IS NOT NULL")
_WITHOUT_OWNER = sa.select(sa.true()).where(FIRST, e.tenant.is_(None)).limit(1)


def owned_jobs(
    connection: Any, query: sa.Select[Any], view: Visibility
) -> tuple[sa.Select[Any], sa.ColumnElement[int]]:
    """
    Restrict a query over jobs to visible ones.

    Return it with the column by which to sort and page.
    """
    if not _has_all_owners(connection):
        return query.where(*seen_by(view, jobs.c)), jobs.c.seq
    first = jobs.join(events, e.job == jobs.c.seq)
    return query.select_from(first).where(FIRST, *seen_by(view, e)), e.job


def first_events(connection: Any, view: Visibility) -> sa.Select[Any] | None:
    """
    Select the numbers of all visible jobs, without reading the jobs.

    `None`: not all first events name their owner yet.
    """
    if not _has_all_owners(connection):
        return None
    return sa.select(e.job).where(FIRST, *seen_by(view, e))


def _has_all_owners(connection: Any) -> bool:
    return not connection.execute(_WITHOUT_OWNER).scalar()
