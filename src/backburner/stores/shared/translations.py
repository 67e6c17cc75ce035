"""The positions of applications in the event log."""

from typing import Any, Final, Protocol

import sqlalchemy as sa

from backburner.domain.events.event import QUEUE_THROTTLED
from backburner.domain.events.translation import EngineEvent, Selection, Untranslated
from backburner.domain.jobs.job import Owner
from backburner.ports.store.transactions import Connection
from backburner.stores.shared.access import Access
from backburner.stores.shared.rows import as_events
from backburner.stores.tables import batches, events, flows, jobs, marks

m, e, c = marks.c, events.c, jobs.c

SPAN: Final = 5_000
"""How many event numbers one read covers."""

_BEGIN = sa.text("""
INSERT INTO marks (name, at, until)
SELECT :name, coalesce(max(seq), 0), 0 FROM events WHERE true
ON CONFLICT (name) DO NOTHING
""")
_ADVANCE = sa.text("UPDATE marks SET at = :upto WHERE name = :name AND at = :mark")
_MARK = sa.select(m.at).where(m.name == sa.bindparam("name"))


class Translations(Access, Protocol):
    """The operations of `TranslationStore`, on both databases."""

    async def latest(self) -> int:
        """Return the event up to which the log is complete."""
        ...

    async def begin_translation(self, application: str) -> None:
        asked = {"name": _name(application)}
        if await self.read(lambda c: c.execute(_MARK, asked).scalar()) is None:
            await self.transact(lambda tx: tx.connection.execute(_BEGIN, asked))

    async def untranslated(
        self, application: str, wanted: Selection, *, seen: int, limit: int
    ) -> Untranslated:
        safe = await self.latest()
        if safe <= seen:
            return Untranslated(seen, [], seen, is_last=True)

        def look(connection: sa.Connection) -> Untranslated:
            result = connection.execute(_MARK, {"name": _name(application)})
            mark = int(result.scalar_one())
            after = max(mark, seen)
            return _look(connection, wanted, mark, after, max(safe, after), limit)

        return await self.read(look)


def advance(connection: Connection, application: str, mark: int, upto: int) -> bool:
    """Advance a position unless another process did; concurrent calls wait here."""
    asked = {"name": _name(application), "mark": mark, "upto": upto}
    return bool(connection.execute(_ADVANCE, asked).rowcount)


def _look(
    connection: sa.Connection,
    wanted: Selection,
    mark: int,
    after: int,
    safe: int,
    limit: int,
) -> Untranslated:
    upto = min(safe, after + SPAN)
    asked = {
        "after": after,
        "upto": upto,
        "limit": limit,
        "types": [name for name in wanted.types if name != QUEUE_THROTTLED],
        "capabilities": [*wanted.capabilities],
        "queues": [*wanted.queues] if QUEUE_THROTTLED in wanted.types else [],
    }
    rows = connection.execute(_EVENTS, asked).all()
    if len(rows) == limit:
        upto = rows[-1].seq
    engine_events = [_as_engine_event(row) for row in rows]
    return Untranslated(mark, engine_events, upto, is_last=upto >= safe)


def _id_of(table: sa.Table, key: sa.Column[Any]) -> sa.ScalarSelect[Any]:
    return sa.select(table.c.id).where(table.c.seq == key).scalar_subquery()


_COLUMNS: Final = (
    e.seq,
    sa.func.coalesce(c.id, e.queue),
    e.n,
    e.type,
    e.at,
    e.data,
    sa.func.coalesce(c.queue, e.queue).label("queue"),
    c.tenant,
    c.user,
    c.capability,
    c.tags,
    _id_of(flows, c.flow).label("flow_id"),
    c.step,
    _id_of(batches, c.batch).label("batch_id"),
)

_IS_OF_JOB = sa.and_(
    e.type.in_(sa.bindparam("types", expanding=True)),
    c.capability.in_(sa.bindparam("capabilities", expanding=True)),
)
_IS_OF_QUEUE = sa.and_(
    e.type == QUEUE_THROTTLED, e.queue.in_(sa.bindparam("queues", expanding=True))
)
# Built once: every process runs it every second.
_EVENTS: Final = (
    sa.select(*_COLUMNS)
    .select_from(events)
    .outerjoin(jobs, c.seq == e.job)
    .where(
        e.seq > sa.bindparam("after", type_=sa.BigInteger),
        e.seq <= sa.bindparam("upto", type_=sa.BigInteger),
        e.topic.is_(None),
        sa.or_(_IS_OF_JOB, _IS_OF_QUEUE),
    )
    .order_by(e.seq)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)


def _as_engine_event(row: Any) -> EngineEvent:
    [event] = as_events([row[:6]])
    if row.tenant is None:
        return EngineEvent(event, row.queue)
    return EngineEvent(
        event,
        row.queue,
        Owner(row.tenant, row.user),
        row.capability,
        tuple(row.tags.split("\n")) if row.tags else (),
        row.flow_id,
        row.step,
        row.batch_id,
    )


def _name(application: str) -> str:
    return f"translation:{application}"
