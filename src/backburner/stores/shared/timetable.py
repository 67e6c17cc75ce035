"""Schedules on both databases."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

import sqlalchemy as sa

from backburner.domain.queues.schedule import ScheduleState
from backburner.ports.store.schedules import Firing
from backburner.ports.store.transactions import Tx
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.tables import schedules as schedule_table

c = schedule_table.c

# A tick that is due is kept while its times stay the same: it may have been missed.
_DECLARE = sa.text("""
INSERT INTO schedules (name, capability, cron, timezone, missed, next_at)
VALUES (:name, :capability, :cron, :timezone, :missed, :next_at)
ON CONFLICT (name) DO UPDATE SET
  capability = excluded.capability, missed = excluded.missed,
  cron = excluded.cron, timezone = excluded.timezone,
  next_at = CASE WHEN schedules.cron = excluded.cron
                  AND schedules.timezone = excluded.timezone
                 THEN schedules.next_at ELSE excluded.next_at END
""")


def declare(schedules: Sequence[ScheduleState]) -> Callable[[Tx], None]:
    """Return a body that stores schedules, in an order that all callers share."""
    rows = [asdict(s) for s in sorted(schedules, key=lambda s: s.name)]

    def body(tx: Tx) -> None:
        for row in rows:
            tx.connection.execute(_DECLARE, row)

    return body


def fire(firing: Firing) -> Callable[[InternalTx], bool]:
    """Return a body that fires ticks if nobody else has."""

    def body(tx: InternalTx) -> bool:
        advance = schedule_table.update().where(
            c.name == firing.name, c.next_at == firing.expected
        )
        values = {"next_at": firing.next_at}
        if firing.last_at is not None:
            values["last_at"] = firing.last_at
        if not tx.connection.execute(advance.values(values)).rowcount:
            return False
        if firing.jobs:
            tx.submit(firing.jobs, capped=False)
        return True

    return body


def listing(connection: sa.Connection) -> list[ScheduleState]:
    """Return every schedule, by name."""
    query = sa.select(
        c.name, c.capability, c.cron, c.timezone, c.missed, c.next_at, c.last_at
    )
    return [ScheduleState(*row) for row in connection.execute(query.order_by(c.name))]
