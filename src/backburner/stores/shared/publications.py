"""Stores events of applications and deletes old ones, on both databases."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

import sqlalchemy as sa

from backburner.domain.events.event import EVERYBODY, RESET, Event
from backburner.domain.events.publication import Publication
from backburner.domain.jobs.job import Instant, Owner
from backburner.ports.store.transactions import Connection
from backburner.stores.tables import events, marks

e, m = events.c, marks.c

FORGOTTEN: Final = "events.forgotten"
"""The mark of the last event that was deleted by age; `until` is the time."""


def publish(connection: Connection, published: Sequence[Publication]) -> None:
    """Store events of applications, with numbers of the event log only."""
    rows = [
        {
            "n": 0,
            "type": event.type,
            "at": event.at,
            "data": event.data,
            "tenant": event.to.tenant,
            "user": event.to.user if isinstance(event.to, Owner) else EVERYBODY,
            "topic": event.topic,
        }
        for event in published
    ]
    connection.execute(events.insert(), rows)


def forget(connection: Any, before: Instant, limit: int, now: Instant) -> int:
    """
    Delete the oldest events of applications, up to the first one to keep.

    The mark shows readers with an older cursor that they missed some.
    """
    first = connection.execute(_FIRST, {"limit": limit}).all()
    old = [seq for seq, at in takewhile(lambda row: row.at <= before, first)]
    if old:
        connection.execute(events.delete().where(e.seq.in_(old)))
        connection.execute(_MARK, {"name": FORGOTTEN, "at": old[-1], "until": now})
    return len(old)


_FIRST = (
    sa.select(e.seq, e.at)
    # A literal, so that the partial index events_published is used.
    .where(sa.text("events.topic IS NOT NULL"))
    .order_by(e.seq)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
# Concurrent deletions may end in either order; the mark never goes back.
_MARK = sa.text("""
INSERT INTO marks (name, at, until) VALUES (:name, :at, :until)
ON CONFLICT (name) DO UPDATE SET at = excluded.at, until = excluded.until
 WHERE excluded.at > marks.at
""")


def missed(connection: sa.Connection, topic: str, after: int) -> Sequence[Event]:
    """Return a `reset` event if events after the cursor may have been deleted."""
    if not after:
        return ()  # a reader that starts with the oldest has missed nothing
    mark = connection.execute(_FORGOTTEN).first()
    if mark is None or mark.at <= after:
        return ()
    data = {"after": after}
    return (Event(mark.at, topic, 0, RESET, mark.until, data, topic=topic),)


_FORGOTTEN = sa.select(m.at, m.until).where(m.name == FORGOTTEN)
