"""
Lists and counts of jobs, each by the index that fits its filter.

What no index finds is looked for among a bounded number of jobs (`walk`).
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from backburner.domain.jobs.job import (
    Instant,
    Job,
    JobState,
    Owner,
    Visibility,
)
from backburner.ports.store.events import Topic
from backburner.ports.store.maintenance import JobFilter
from backburner.stores.shared import dead_letters
from backburner.stores.shared.job_filters import (
    DEAD,
    FEW,
    LIVE,
    RARE,
    conditions_of,
    in_states,
    is_in_group,
    owner_conditions,
)
from backburner.stores.shared.owned import FIRST, first_events, owned_jobs
from backburner.stores.shared.paging import (
    ends_of,
    first_since,
    newest,
    seen_by,
    seen_without_index,
    unindexed,
)
from backburner.stores.shared.rows import JOB_COLUMNS, LISTED_COLUMNS, as_job, as_listed
from backburner.stores.tables import events as event_table
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
    """Return a page of jobs, newest first or oldest first."""
    return _jobs(connection, *_by_index(connection, where), before, limit)


def _jobs(
    connection: sa.Connection,
    where: JobFilter,
    few: Collection[JobState],
    before: int | None,
    limit: int,
) -> list[Job]:
    if not where.states:
        return _page(connection, where, before, limit, few)
    # Each rare state by its own index; the common ones in one walk by number.
    rare = where.states.intersection(few)
    parts = _parts(where, rare)
    if common := where.states - rare:
        parts.append(replace(where, states=common))
    found = [
        job for part in parts for job in _page(connection, part, before, limit, few)
    ]
    found.sort(key=lambda job: job.seq, reverse=not where.oldest_first)
    return found[:limit]


def _page(
    connection: sa.Connection,
    where: JobFilter,
    before: int | None,
    limit: int,
    few: Collection[JobState],
    edge: int | None = None,
) -> list[Job]:
    query = SELECT_LISTED.where(*conditions_of(where), *_until(where, edge))
    query = query.where(*_numbered(connection, where))
    ascending = where.oldest_first
    if _has_own_index(where):
        query = query.where(*owner_conditions(where))
        rows = newest(
            *(connection, query, job_table, None, limit),
            before=before,
            ascending=ascending,
        )
        return [as_listed(row) for row in rows]
    # The steps of a flow are found by its index and sorted, like jobs in a rare state.
    if where.state not in RARE and where.flow is None and where.fingerprint is None:
        owner = where.owner
        if is_in_group(where):
            query, owner = query.where(*owner_conditions(where)), None
        if is_in_group(where) or where.state not in few:
            rows = newest(
                connection,
                query,
                job_table,
                owner,
                limit,
                before=before,
                ascending=ascending,
                restrict=owned_jobs,
            )
            return [as_listed(row) for row in rows]
        page = _next_in_state(connection, where, before, limit, edge)
        if page is not None:
            return page
    # Found by the index of their state and sorted: walking back through the numbers
    # would read the whole history for a handful.
    seq = unindexed(job_table)
    if before is not None:
        query = query.where(seq > before if ascending else seq < before)
    query = query.where(*owner_conditions(where))
    query = query.order_by(seq if ascending else seq.desc())
    return _listed(connection, query.limit(limit))


def _is_long(connection: sa.Connection, owner: Visibility | None) -> bool:
    """Say whether this is one owner who has more jobs than are looked at anyway."""
    mine = first_events(connection, owner) if isinstance(owner, Owner) else None
    if mine is None:
        return False
    some = mine.limit(OWNED_REACH + 1).subquery()
    counted = connection.execute(sa.select(sa.func.count()).select_from(some))
    return int(counted.scalar_one()) > OWNED_REACH


def _are_few(connection: sa.Connection, state: JobState, reach: int) -> bool:
    return count(connection, JobFilter(state=state), reach + 1) <= reach


def _next_in_state(
    connection: sa.Connection,
    where: JobFilter,
    before: int | None,
    limit: int,
    edge: int | None,
) -> list[Job] | None:
    """
    Return a page of jobs in a state, found among the next jobs without sorting all.

    First the next numbers of all jobs are searched, then the next in this state: these
    are found by sorting a backlog's numbers, which its index has, and not its jobs.
    `None`: neither has enough jobs for a full page.
    """
    if where.state is JobState.FAILED and not _are_many_dead(connection, where):
        return None
    number, ascending = unindexed(job_table), where.oldest_first
    order = number if ascending else number.desc()
    # Written as IN, which no partial index serves: the numbers are to be used here.
    states = frozenset({where.state} if where.state else ())
    conditions = conditions_of(replace(where, state=None, states=states))
    if where.owner is not None:
        conditions += seen_without_index(where.owner, c)
    query = SELECT_LISTED.where(*conditions, *_until(where, edge))
    query = query.order_by(order).limit(limit)
    for find in (_next, _next_in):
        near = find(connection, where, before)
        page = [] if near is None else _listed(connection, query.where(near))
        if len(page) == limit:
            return page
    return None


def _are_many_dead(connection: sa.Connection, where: JobFilter) -> bool:
    """Say whether there are more dead letters than are soon sorted."""
    dead = JobFilter(where.owner, JobState.FAILED)
    return count(connection, dead, OWNED_REACH + 1) > OWNED_REACH


def _next(
    connection: sa.Connection, where: JobFilter, before: int | None
) -> sa.ColumnElement[bool] | None:
    """Say that a number is among the next of all jobs; the oldest are long ended."""
    if before is None and where.oldest_first:
        return None
    last = before or connection.execute(sa.select(sa.func.max(c.seq))).scalar() or 0
    if where.oldest_first:
        return c.seq.between(last + 1, last + NEXT)
    return c.seq.between(last - NEXT, last if before is None else last - 1)


def _next_in(
    connection: sa.Connection, where: JobFilter, before: int | None
) -> sa.ColumnElement[bool]:
    """Say that a number is among the next in a state, by the index of that state."""
    number, in_state = unindexed(job_table), JobFilter(where.owner, where.state)
    # Dead letters have an index of owners.
    mine = owner_conditions(in_state) if where.state is JobState.FAILED else []
    some = sa.select(c.seq).where(*in_states(in_state), *mine)
    if before is not None:
        some = some.where(number > before if where.oldest_first else number < before)
    some = some.order_by(number if where.oldest_first else number.desc()).limit(NEXT)
    # A query of its own: PostgreSQL would read all jobs for each of these numbers.
    return c.seq.in_(connection.execute(some).scalars().all())


def walk(
    connection: sa.Connection,
    where: JobFilter,
    before: int | None,
    limit: int,
    reach: int,
) -> tuple[list[Job], int | None]:
    """
    Return a page of jobs as `jobs` does, but look at `reach` jobs at most.

    Also return the number to go on from, if it stopped before the page was full.
    """
    where, few = _by_index(connection, where, reach)
    span = None
    if _is_walked(where, few):
        begin = _begin(connection, where, few) if before is None else before
        span = _span(connection, where, begin, reach)
    if span is None:
        return _jobs(connection, where, few, before, limit), None
    rare = where.states & few
    found = [
        job
        for part in _parts(where, rare)
        for job in _page(connection, part, before, limit, few, span.edge)
    ]
    common = replace(where, states=where.states - rare)
    query = SELECT_LISTED.where(*conditions_of(common))
    found += [
        as_listed(row)
        for row in connection.execute(
            _between(connection, query, where, span).limit(limit)
        )
    ]
    found.sort(key=lambda job: job.seq, reverse=not where.oldest_first)
    is_over = span.is_last or len(found) >= limit
    return found[:limit], None if is_over else span.edge


def _begin(
    connection: sa.Connection, where: JobFilter, few: Collection[JobState]
) -> int | None:
    """
    Return the number before the first job in a live state, of all owners.

    A walk through the jobs of an owner with a long history begins there, because that
    history has ended. `None`: it begins with the owner's first job.
    """
    states = where.states - set(few)
    if not states or not states <= LIVE or not _is_long(connection, where.owner):
        return None
    number, ascending = unindexed(job_table), where.oldest_first
    edge = sa.func.min(number) if ascending else sa.func.max(number)
    ends = [
        connection.execute(
            sa.select(edge).select_from(job_table).where(*in_states(part))
        ).scalar()
        for part in _parts(JobFilter(), states)
    ]
    known = [int(end) for end in ends if end is not None]
    if not known:
        return None
    return min(known) - 1 if ascending else max(known) + 1


def _by_index(
    connection: sa.Connection, where: JobFilter, reach: int | None = None
) -> tuple[JobFilter, frozenset[JobState]]:
    """
    Say in which states jobs are found by the index of their state.

    Those of an owner with a short history are found by the owner's index. With `reach`,
    jobs that no index has, among more than so many in their state, are to be walked
    through. Return it with the filter, which names one state as such unless it is.
    """
    states = where.states or frozenset({where.state} if where.state else ())
    live = frozenset() if is_in_group(where) else states & LIVE
    is_owned = isinstance(where.owner, Owner)
    if live and is_owned and not _is_long(connection, where.owner):
        many = live
    elif is_owned or (reach is not None and _is_named(where)):
        most = LIVE_REACH if reach is None else reach
        many = frozenset(one for one in live if not _are_few(connection, one, most))
    else:
        many = frozenset()
    few = (FEW | LIVE) - many
    if len(states) == 1 and not many:
        return replace(where, state=next(iter(states)), states=frozenset()), few
    return replace(where, state=None, states=states), few


def _is_named(where: JobFilter) -> bool:
    """Say whether jobs are asked for by something that no index has."""
    named = (where.capability, where.queue, where.tag, where.since, where.until)
    return bool(where.metadata) or any(one is not None for one in named)


def _has_own_index(where: JobFilter) -> bool:
    """Say whether the jobs are one owner's cancelled ones, which have an index."""
    is_cancelled = where.state is JobState.CANCELLED and not _is_named(where)
    is_owned = isinstance(where.owner, Owner) and not is_in_group(where)
    return is_cancelled and is_owned


def _is_walked(where: JobFilter, few: Collection[JobState]) -> bool:
    """Say whether no index finds the jobs: they are looked for one by one."""
    if is_in_group(where) or where.fingerprint is not None or _has_own_index(where):
        return False
    states = where.states or ({where.state} if where.state else set())
    if states and states <= set(few):
        return _is_named(where) and states == {JobState.FAILED}
    return bool(states) or _is_named(where)


def _parts(where: JobFilter, states: Collection[JobState]) -> list[JobFilter]:
    """Ask for each state on its own: each has an index."""
    return [replace(where, state=state, states=frozenset()) for state in states]


def _until(where: JobFilter, edge: int | None) -> list[sa.ColumnElement[bool]]:
    """Say that a number is not beyond an edge, without its index."""
    if edge is None:
        return []
    seq = unindexed(job_table)
    return [seq <= edge if where.oldest_first else seq >= edge]


OWNED_REACH: Final = 3_000
"""How many jobs of one owner are looked at: they lie still further apart."""
NEXT: Final = 1_000
"""Among how many of the next jobs a page is looked for."""
LIVE_REACH: Final = 30_000
"""Up to this many jobs in a live state, an owner's are found among those of all."""
MOST: Final = 2**63 - 1
"""Greater than every number."""


class _Span(NamedTuple):
    """The numbers of jobs that are looked at, in the order of a walk."""

    before: int | None
    """Where it begins, without that number; `None`: at the first of all."""
    edge: int
    """Where it ends, with that number."""
    is_last: bool
    """Whether no job beyond the edge can match."""


def _span(
    connection: sa.Connection, where: JobFilter, before: int | None, reach: int
) -> _Span | None:
    """Say which `reach` jobs to look at; `None`: a tenant has no more than that."""
    low, high = _numbers(connection, where)
    if where.oldest_first:
        first, last = None if low is None else low - 1, high
        nearer, further, end = max, min, MOST
    else:
        first, last = high, low
        nearer, further, end = min, max, 0
    begin = nearer((one for one in (before, first) if one is not None), default=None)
    edge = _edge(connection, where, begin, reach)
    if edge is None:
        return None
    edge = further(edge, end if last is None else last)
    return _Span(begin, edge, edge in {end, last})


def _edge(
    connection: sa.Connection, where: JobFilter, before: int | None, reach: int
) -> int | None:
    """
    Return the number that is `reach` jobs away, or beyond all if there are fewer.

    `None`: a tenant has no more than that.
    """
    owner, ascending = where.owner, where.oldest_first
    end = MOST if ascending else 0
    is_dead = where.state is JobState.FAILED
    if is_dead or isinstance(owner, Owner):
        some = sa.select(c.seq).select_from(job_table)
        some, number = _seen(connection, some, where)
        if is_dead:
            some = some.where(DEAD)
            reach = min(reach, dead_letters.DEAD_REACH)
        else:
            reach = min(reach, OWNED_REACH)
        some = some.with_only_columns(number.label("seq"))
        if before is not None:
            some = some.where(number > before if ascending else number < before)
        order = number if ascending else number.desc()
        last = some.order_by(order).offset(reach - 1).limit(1)
        return connection.execute(last).scalar() or end
    if owner is not None and _is_small(connection, owner, reach):
        return None
    ends = ends_of(connection, job_table)
    if ends is None:
        return end
    low, high = ends
    if ascending:
        edge = (before if before is not None else low - 1) + reach
        return edge if edge < high else end
    edge = (before if before is not None else high + 1) - reach
    return edge if edge > low else end


def _is_small(connection: sa.Connection, owner: Visibility, reach: int) -> bool:
    """Say whether a tenant has fewer jobs than are looked at anyway."""
    some, _ = owned_jobs(connection, sa.select(c.seq), owner)
    if some.get_final_froms() == [job_table]:
        return False  # its owners' index is not complete yet
    mine = sa.select(sa.literal(1)).where(FIRST, *seen_by(owner, event_table.c))
    counted = sa.select(sa.func.count()).select_from(mine.limit(reach).subquery())
    return int(connection.execute(counted).scalar_one()) < reach


def _between(
    connection: sa.Connection, query: sa.Select[Any], where: JobFilter, span: _Span
) -> sa.Select[Any]:
    """Restrict a query to what is seen within a span, in order."""
    ascending = where.oldest_first
    query, number = _seen(connection, query, where)
    query = query.where(number <= span.edge if ascending else number >= span.edge)
    if span.before is not None:
        first = number > span.before if ascending else number < span.before
        query = query.where(first)
    return query.order_by(number if ascending else number.desc())


def _seen(
    connection: sa.Connection, query: sa.Select[Any], where: JobFilter
) -> tuple[sa.Select[Any], sa.ColumnElement[int]]:
    """Restrict a query to what is seen; return it with the number to walk by."""
    if where.state is JobState.FAILED:
        mine = [] if where.owner is None else seen_by(where.owner, c)
        return query.where(*mine), unindexed(job_table)
    if isinstance(where.owner, Owner):
        return owned_jobs(connection, query, where.owner)
    if where.owner is not None:
        query = query.where(*seen_without_index(where.owner, c))
    return query, c.seq


def count_within(
    connection: sa.Connection, where: JobFilter, most: int, reach: int
) -> tuple[int, bool]:
    """
    Count the jobs that match, `most` at most, among the newest `reach` jobs.

    With `until`, among the newest made before that. Say also whether all of them were
    counted.
    """
    where, few = _by_index(connection, replace(where, oldest_first=False), reach)
    span = _span(connection, where, None, reach) if _is_walked(where, few) else None
    if span is None:
        found = _count(connection, where, few, most)
        return found, found < most
    rare = where.states & few
    total = sum(
        _count(connection, part, few, most, span.edge) for part in _parts(where, rare)
    )
    common = replace(where, states=where.states - rare)
    query = sa.select(c.seq).select_from(job_table).where(*conditions_of(common))
    some = _between(connection, query, where, span).limit(most).subquery()
    counted = sa.select(sa.func.count()).select_from(some)
    total += int(connection.execute(counted).scalar_one())
    return min(total, most), span.is_last and total < most


CLOCKS_AGREE_MS: Final = 3_600_000
"""Jobs are numbered in the order of their creation, give or take an hour."""


def _numbers(
    connection: sa.Connection, where: JobFilter
) -> tuple[int | None, int | None]:
    """Bound the numbers of jobs by when they were made: times have no index."""
    low = high = None
    if where.since is not None:
        low = first_since(connection, c.created_at, where.since - CLOCKS_AGREE_MS)
    if where.until is not None:
        high = first_since(connection, c.created_at, where.until + CLOCKS_AGREE_MS)
    return low, high


def _numbered(
    connection: sa.Connection, where: JobFilter
) -> list[sa.ColumnElement[bool]]:
    low, high = _numbers(connection, where)
    bounds: list[sa.ColumnElement[bool]] = []
    if low is not None:
        bounds.append(c.seq >= low)
    if high is not None:
        bounds.append(c.seq < high)
    return bounds


def count(
    connection: sa.Connection,
    where: JobFilter,
    most: int | None = None,
    edge: int | None = None,
) -> int:
    """
    Return how many jobs match; with `most`, count no further than that.

    With `edge`, count from that number on.
    """
    where, few = _by_index(connection, where)
    return _count(connection, where, few, most, edge)


def _count(
    connection: sa.Connection,
    where: JobFilter,
    few: Collection[JobState],
    most: int | None,
    edge: int | None = None,
) -> int:
    if where.states and where.states.issubset(few):  # each has an index of its own
        parts = _parts(where, where.states)
        total = sum(_count(connection, part, few, most, edge) for part in parts)
        return total if most is None else min(total, most)
    counted = sa.select(c.seq).select_from(job_table)
    conditions = [*conditions_of(where), *_until(where, edge)]
    conditions += _numbered(connection, where)
    counted = counted.where(*conditions)
    is_found = where.state in few or is_in_group(where) or _has_own_index(where)
    if where.owner is None or is_found:
        counted = counted.where(*owner_conditions(where))
    else:
        first = None if conditions else first_events(connection, where.owner)
        if first is None:
            counted, _ = owned_jobs(connection, counted, where.owner)
        else:
            counted = first
    if most is not None:
        counted = counted.limit(most)
    query = sa.select(sa.func.count()).select_from(counted.subquery())
    return int(connection.execute(query).scalar_one())


def last_of(connection: sa.Connection, topic: Topic) -> int:
    """Return the number of the latest event of a flow or batch itself."""
    e = event_table.c
    mine = e.batch == topic.batch if topic.flow is None else e.flow == topic.flow
    # The last by its index, which is by flow or batch and by number within it.
    query = sa.select(e.seq).where(mine).order_by(e.n.desc()).limit(1)
    return connection.execute(query).scalar() or 0


def orphans(connection: sa.Connection, limit: int) -> list[Job]:
    """Return running jobs whose worker is not enlisted."""
    return [as_listed(row) for row in connection.execute(_ORPHANS, {"limit": limit})]


# Asked for every second or two by every process: built once, too.
_ORPHANS = (
    SELECT_LISTED.where(
        sa.text("state = 'running'"), c.worker.not_in(sa.select(worker_table.c.id))
    )
    # The order of the partial index jobs_running, which serves.
    .order_by(c.worker, c.seq)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_OVERDUE = (
    SELECT_LISTED.where(
        c.expires_at.is_not(None),
        c.expires_at <= sa.bindparam("now"),
        # Literals, so that the partial index jobs_expiring serves.
        sa.text("state IN ('blocked','scheduled','queued')"),
    )
    .order_by(c.expires_at)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)


def overdue(connection: sa.Connection, now: Instant, limit: int) -> list[Job]:
    """Return waiting jobs whose time is over."""
    found = connection.execute(_OVERDUE, {"now": now, "limit": limit})
    return [as_listed(row) for row in found]


def _listed(
    connection: sa.Connection, query: sa.Select[tuple[object, ...]]
) -> list[Job]:
    return [as_listed(row) for row in connection.execute(query)]
