"""
Reads the event log on both databases: by owner, flow, batch, tag or topic.

The events of one owner are a range of an index, so a page of them costs the same
whatever the number of other events. For a whole tenant, the ranges of its users are
read if they are few, otherwise all events in a range of numbers. Every read is bounded:
a page says how far it has read, even if it found nothing.

Events that were written before schema 0015 have no owner until upkeep adds it. While
there are such events, the events of all owners are read, range by range, and their jobs
are looked up.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

import sqlalchemy as sa

from backburner.domain.events.event import EVERYBODY
from backburner.domain.jobs.job import Instant, Owner, Visibility
from backburner.ports.store.events import EVERYTHING, EventPage, Topic
from backburner.stores.shared.access import Access
from backburner.stores.shared.job_filters import has_tag
from backburner.stores.shared.publications import forget, missed
from backburner.stores.shared.rows import as_events
from backburner.stores.tables import batches, events, flows, jobs

e, c, f, b = events.c, jobs.c, flows.c, batches.c

FEW: Final = 20
"""Up to this number of users, the range of each is read separately."""
SPAN: Final = 5_000
"""How many numbers a read of all events covers."""
SCANNED: Final = 2_000
"""How many of an owner's events are read to find those with a tag."""

# Literals, so that the partial indexes are used.
WITHOUT_OWNER: Final = sa.text("events.tenant IS NULL AND events.queue IS NULL")
OF_QUEUES: Final = sa.text("events.queue IS NOT NULL")
PUBLISHED: Final = sa.text("events.topic IS NOT NULL")

HOLDERS: Final = {"job": jobs, "flow": flows, "batch": batches}
"""The tables of subjects, by the column of an event that refers to them."""
SUBJECT: Final = sa.func.coalesce(c.id, f.id, b.id, e.queue, e.topic)
AFTER = sa.bindparam("after", type_=sa.BigInteger)
UPTO = sa.bindparam("upto", type_=sa.BigInteger)
LIMIT = sa.bindparam("limit", type_=sa.Integer)
IN_SPAN: Final = (e.seq > AFTER, e.seq <= UPTO)


class Span(NamedTuple):
    """A range of event numbers, and how many events to return."""

    after: int
    upto: int
    limit: int


class Streams(Access, Protocol):
    """The reads of `EventLog` that are the same on both databases."""

    async def latest(self) -> int:
        """Return the event up to which the log is complete."""
        ...

    async def stream(
        self, owner: Visibility, *, after: int, limit: int, topic: Topic = EVERYTHING
    ) -> EventPage:
        span = Span(after, await self.latest(), limit)
        if span.upto <= after and topic.name is None:
            return EventPage((), after, is_last=True)
        return await self.read(lambda c: page(c, owner, topic, span))

    async def forget_published(
        self, *, before: Instant, now: Instant, limit: int
    ) -> int:
        return await self.transact(lambda tx: forget(tx.connection, before, limit, now))

    async def fill_event_owners(self, *, limit: int) -> int:
        return await self.transact(lambda tx: fill_owners(tx.connection, limit))


def page(
    connection: sa.Connection, owner: Visibility, wanted: Topic, span: Span
) -> EventPage:
    """
    Return the visible events of a range, and how far it was read.

    A page of a topic begins with a `reset` if events after the cursor were deleted.
    """
    if span.upto > span.after:
        result = _find(connection, owner, wanted, span)
    else:
        result = EventPage((), span.after, is_last=True)
    if wanted.name is None:
        return result
    # Check this after the read, so that deletions before the read are noticed.
    reset = missed(connection, wanted.name, span.after)
    # Events up to here are deleted for all topics: the reader is notified once.
    upto = max([result.upto, *(event.seq for event in reset)])
    return result._replace(events=[*reset, *result.events], upto=upto)


def _find(
    connection: sa.Connection, owner: Visibility, wanted: Topic, span: Span
) -> EventPage:
    if wanted.flow is not None or wanted.batch is not None:
        rows = connection.execute(_of_group(owner, wanted, span)).all()
        return _page(rows, span, span.upto)
    first = connection.execute(_FIRST_WITHOUT_OWNER, span._asdict()).scalar()
    if first is not None and first <= span.after + SPAN:
        return _walk(connection, owner, wanted, span)
    users = _users(connection, owner, wanted)
    if len(users) > FEW:
        return _walk(connection, owner, wanted, span)
    result = _of_users(
        connection,
        owner.tenant,
        users,
        wanted,
        span if first is None else span._replace(upto=first - 1),
    )
    return result if first is None else result._replace(is_last=False)


_FIRST_WITHOUT_OWNER = sa.select(sa.func.min(e.seq)).where(WITHOUT_OWNER, *IN_SPAN)


def _users(
    connection: sa.Connection, owner: Visibility, wanted: Topic
) -> Sequence[str]:
    """Return the users whose events are visible; for a tenant, at most `FEW` + 1."""
    if isinstance(owner, Owner):
        return (owner.user, EVERYBODY)
    asked = {"tenant": owner.tenant, "topic": wanted.name, "limit": FEW + 1}
    query = _USERS if wanted.name is None else _USERS_OF_TOPIC
    return connection.execute(query, asked).scalars().all() or (EVERYBODY,)


# Skip from one name to the next in the index, however many events each has.
_NAMES = """
WITH RECURSIVE names (name) AS (
  SELECT min(events."user") FROM events WHERE {mine}
  UNION ALL
  SELECT (SELECT min(events."user") FROM events
           WHERE {mine} AND events."user" > names.name)
    FROM names WHERE names.name IS NOT NULL
)
SELECT names.name FROM names WHERE names.name IS NOT NULL LIMIT :limit
"""
_USERS = sa.text(_NAMES.format(mine="events.tenant = :tenant"))
_USERS_OF_TOPIC = sa.text(
    _NAMES.format(
        mine="events.tenant = :tenant AND events.topic = :topic"
        " AND events.topic IS NOT NULL"
    )
)


def _of_users(
    connection: sa.Connection,
    tenant: str,
    users: Sequence[str],
    wanted: Topic,
    span: Span,
) -> EventPage:
    scanned = span.limit if wanted.tag is None else SCANNED
    asked = {
        **span._asdict(),
        "limit": scanned,
        "tenant": tenant,
        "topic": wanted.name,
        "tag": wanted.tag,
        **{f"user_{i}": user for i, user in enumerate(users)},
    }
    query = _ranges(
        len(users), wanted.name is not None, wanted.tag is not None, wanted.queues
    )
    rows = connection.execute(query, asked).all()
    upto = span.upto if len(rows) < scanned else rows[-1].seq
    return _page([row for row in rows if row.is_meant], span, upto)


@cache
def _ranges(
    users: int, is_topic: bool, is_tag: bool, has_queues: bool
) -> sa.Select[Any]:
    """Select the next events of some users, each from its range of the index."""
    parts = [_range(f"user_{i}", is_topic) for i in range(users)]
    if has_queues:
        of_queues = sa.select(events).where(OF_QUEUES, *IN_SPAN)
        parts.append(of_queues.order_by(e.seq).limit(LIMIT))
    t = sa.union_all(*(sa.select(part.subquery()) for part in parts)).subquery().c
    # One look-up per row by its key, because planners do not turn that into a join.
    ids = (_scalar(table.c.id, t[key]) for key, table in HOLDERS.items())
    subject = sa.func.coalesce(*ids, t.queue, t.topic)
    tags = _scalar(c.tags, t.job)
    is_meant = has_tag(tags, sa.bindparam("tag")) if is_tag else sa.true()
    data = sa.case((is_meant, t.data)) if is_tag else t.data
    query = sa.select(
        t.seq, subject, t.n, t.type, t.at, data, t.topic, is_meant.label("is_meant")
    )
    return query.order_by(t.seq).limit(LIMIT)


def _scalar(column: sa.Column[Any], key: sa.ColumnElement[Any]) -> sa.ScalarSelect[Any]:
    """Select a column of the row that an event refers to."""
    return sa.select(column).where(column.table.c.seq == key).scalar_subquery()


def _range(user: str, is_topic: bool) -> sa.Select[Any]:
    """Select the next events of one user: one range of an index."""
    names = ("tenant", "topic", "user") if is_topic else ("tenant", "user")
    mine = (
        e[name] == sa.bindparam(user if name == "user" else name, type_=sa.Text)
        for name in names
    )
    # Not as a row comparison: PostgreSQL would bound the scan by its first column only.
    query = sa.select(events).where(*mine, *IN_SPAN)
    if is_topic:
        query = query.where(PUBLISHED)
    return query.order_by(e.seq).limit(LIMIT)


def _walk(
    connection: sa.Connection, owner: Visibility, wanted: Topic, span: Span
) -> EventPage:
    """Read all events of a bounded range, and filter them."""
    upto = min(span.upto, span.after + SPAN)
    mine = sa.func.coalesce(e.tenant, c.tenant, f.tenant, b.tenant) == owner.tenant
    if isinstance(owner, Owner):
        user = sa.func.coalesce(e.user, c.user, f.user, b.user)
        mine = sa.and_(mine, user.in_((owner.user, EVERYBODY)))
    if wanted.queues:
        mine = sa.or_(mine, OF_QUEUES)
    query = _joined(e.data).where(*IN_SPAN, mine)
    if wanted.name is not None:
        query = query.where(e.topic == wanted.name)
    if wanted.tag is not None:
        query = query.where(has_tag(c.tags, wanted.tag))
    asked = span._replace(upto=upto)._asdict()
    rows = connection.execute(query.order_by(e.seq).limit(LIMIT), asked).all()
    return _page(rows, span, upto)


def _of_group(owner: Visibility, wanted: Topic, span: Span) -> sa.Select[Any]:
    mine = sa.func.coalesce(c.tenant, f.tenant, b.tenant) == owner.tenant
    if isinstance(owner, Owner):
        user = sa.func.coalesce(c.user, f.user, b.user)
        mine = sa.and_(mine, user == owner.user)
    query = _joined(e.data).where(mine, e.seq.in_(_numbers(wanted)))
    return query.order_by(e.seq).limit(LIMIT).params(span._asdict())


def _numbers(wanted: Topic) -> Any:
    if wanted.flow is None:
        return _news("batch", b.seq == wanted.batch)
    steps, own_events = (
        _news("job", c.flow == wanted.flow),
        _news("flow", f.seq == wanted.flow),
    )
    return sa.union_all(steps, own_events)


def _news(key: str, chosen: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """
    Select the next events after the cursor of each chosen job, flow or batch.

    Within each of them, `n` has no gaps and the same order as the log. So the last
    event up to the cursor is found by bisection, where `low` and `high` meet. From
    there on events are read one by one, as long as `left` is positive. Few events are
    read besides those that are returned.

    This is one recursive statement: SQLite assumes that its result is so large that a
    join would read all events in advance.
    """
    holder = HOLDERS[key].c
    begin = sa.select(
        holder.seq.label("holder"),
        sa.literal_column("0").label("low"),
        holder.events.label("high"),
        LIMIT.label("left"),
        sa.cast(sa.literal_column("0"), sa.BigInteger).label("seq"),
    )
    at = begin.where(chosen).cte(f"{key}_news", recursive=True)
    low, high, left = at.c.low, at.c.high, at.c.left
    event = events.alias("event").c
    is_searching = low < high
    middle = (low + high + 1) // 2
    n = sa.case((is_searching, middle), else_=low + 1)
    is_below = sa.and_(is_searching, sa.func.coalesce(event.seq, 0) > AFTER)
    next_ = sa.select(
        at.c.holder,
        sa.case((is_below, low), else_=n),
        sa.case((is_below, middle - 1), (is_searching, high), else_=n),
        sa.case((is_searching, left), else_=left - 1),
        sa.case((is_searching, at.c.seq), else_=event.seq),
    )
    found = at.outerjoin(
        event.seq.table, sa.and_(event[key] == at.c.holder, event.n == n)
    )
    is_next = sa.and_(event.seq <= UPTO, left > 0)
    next_ = next_.select_from(found).where(sa.or_(is_searching, is_next))
    news = at.union_all(next_).c.seq
    return sa.select(news).where(news > AFTER)


def _joined(data: sa.ColumnElement[Any]) -> sa.Select[Any]:
    return (
        sa.select(e.seq, SUBJECT, e.n, e.type, e.at, data, e.topic)
        .select_from(events)
        .outerjoin(jobs, c.seq == e.job)
        .outerjoin(flows, f.seq == e.flow)
        .outerjoin(batches, b.seq == e.batch)
    )


def _page(rows: Sequence[Any], span: Span, upto: int) -> EventPage:
    page_events = as_events(row[:7] for row in rows[: span.limit])
    if len(rows) >= span.limit:
        upto = page_events[-1].seq
    return EventPage(page_events, upto, is_last=upto >= span.upto)


def fill_owners(connection: Any, limit: int) -> int:
    """Add the owner to the oldest events without one; return their number."""
    rows = connection.execute(_OLDEST_WITHOUT_OWNER, {"limit": limit})
    seqs = rows.scalars().all()
    if seqs:
        connection.execute(_FILL, {"seqs": seqs})
    return len(seqs)


_OLDEST_WITHOUT_OWNER = (
    sa.select(e.seq)
    .where(WITHOUT_OWNER)
    .order_by(e.seq)
    .limit(LIMIT)
    # Events that another process is deleting are skipped.
    .with_for_update(skip_locked=True)
)


def _owner(name: str) -> sa.ColumnElement[str]:
    """Select a part of the owner; empty if the subject was deleted."""
    columns = (_scalar(table.c[name], e[key]) for key, table in HOLDERS.items())
    return sa.func.coalesce(*columns, "")


_FILL = (
    sa.update(events)
    .where(e.seq.in_(sa.bindparam("seqs", expanding=True)))
    .values(tenant=_owner("tenant"), user=_owner("user"))
)
