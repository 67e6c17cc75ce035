"""
Jobs of an owner or a tenant, found by their first events.

The first event of a job is written with it, names its owner and never changes. So its
index costs nothing at claims and settlements, unlike one on `jobs`.

A process of an earlier release writes events without an owner, which upkeep fills in.
While there are first events without one, jobs are found by their own columns: without
an index, and none is left out.
"""

from typing import Any

import sqlalchemy as sa

from backburner.domain.jobs.job import Visibility
from backburner.stores.shared.paging import seen_by
from backburner.stores.tables import events, jobs

e = events.c

# Literals, so that the partial index events_first_by_owner serves.
FIRST = sa.text("events.n = 1 AND events.job IS NOT NULL")
_WITHOUT_OWNER = sa.select(sa.true()).where(FIRST, e.tenant.is_(None)).limit(1)


def owned_jobs(
    connection: Any, query: sa.Select[Any], view: Visibility
) -> tuple[sa.Select[Any], sa.ColumnElement[int]]:
    """
    Restrict a query over jobs to those that are seen.

    Return it with the number by which to sort and page: that of the index.
    """
    if connection.execute(_WITHOUT_OWNER).scalar():
        return query.where(*seen_by(view, jobs.c)), jobs.c.seq
    first = jobs.join(events, e.job == jobs.c.seq)
    return query.select_from(first).where(FIRST, *seen_by(view, e)), e.job
