"""Schedules on both databases."""

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from backburner.domain.jobs.job import Instant, Owner
from backburner.domain.queues.schedule import ScheduleState
from backburner.ports.store.schedules import Firing
from backburner.ports.store.transactions import Tx
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.tables import schedules as schedule_table

c = schedule_table.c

# A due tick is kept if the schedule is unchanged, because it may have been missed.
_UPSERT = """
INSERT INTO schedules (name, capability, cron, timezone, missed, next_at, paused,
                       tenant, "user", input)
VALUES (:name, :capability, :cron, :timezone, :missed, :next_at, :paused,
        :tenant, :user, :input)
ON CONFLICT (name) DO UPDATE SET
  capability = excluded.capability, missed = excluded.missed,
  cron = excluded.cron, timezone = excluded.timezone,
  tenant = excluded.tenant, "user" = excluded."user", input = excluded.input,
  next_at = CASE WHEN schedules.cron = excluded.cron
                  AND schedules.timezone = excluded.timezone
                 THEN schedules.next_at ELSE excluded.next_at END
"""
_DECLARE = sa.text(_UPSERT)
# Decided under the row's lock: code may declare one of this name at the same time.
_SAVE = sa.text(f"{_UPSERT} WHERE schedules.tenant IS NOT NULL RETURNING name")


def declare(schedules: Sequence[ScheduleState]) -> Callable[[Tx], None]:
    """Return a body that stores schedules, in the same order for all callers."""
    rows = [_row(s) for s in sorted(schedules, key=lambda s: s.name)]

    def body(tx: Tx) -> None:
        for row in rows:
            tx.connection.execute(_DECLARE, row)

    return body


def _row(schedule: ScheduleState) -> dict[str, Any]:
    owner = schedule.owner
    return {
        "name": schedule.name,
        "capability": schedule.capability,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "missed": schedule.missed,
        "next_at": schedule.next_at,
        "paused": schedule.paused,
        "tenant": None if owner is None else owner.tenant,
        "user": None if owner is None else owner.user,
        "input": schedule.input,
    }


def save(schedule: ScheduleState) -> Callable[[Tx], bool]:
    """Return a body that stores a schedule, unless code declares one of this name."""

    def body(tx: Tx) -> bool:
        return tx.connection.execute(_SAVE, _row(schedule)).first() is not None

    return body


def delete(name: str) -> Callable[[Tx], bool]:
    """Return a body that deletes a schedule that is not declared by code."""
    mine = schedule_table.delete().where(c.name == name, c.tenant.is_not(None))

    def body(tx: Tx) -> bool:
        return bool(tx.connection.execute(mine).rowcount)

    return body


def pause(name: str, paused: bool, next_at: Instant) -> Callable[[Tx], bool]:
    """Return a body that pauses a schedule, or resumes it at `next_at`."""
    query = sa.select(c.paused).where(c.name == name).with_for_update()
    change = {"paused": paused} if paused else {"paused": paused, "next_at": next_at}

    def body(tx: Tx) -> bool:
        was = tx.connection.execute(query).scalar()
        if was is not None and bool(was) is not paused:
            setting = schedule_table.update().where(c.name == name)
            tx.connection.execute(setting.values(change))
        return was is not None

    return body


def fire(firing: Firing) -> Callable[[InternalTx], bool]:
    """Return a body that fires ticks, unless another process has."""

    def body(tx: InternalTx) -> bool:
        advance = schedule_table.update().where(
            c.name == firing.name,
            c.next_at == firing.expected,
            c.paused.is_(sa.false()),
            *_is_unchanged(firing.saved),
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


def _is_unchanged(saved: ScheduleState | None) -> list[sa.ColumnElement[bool]]:
    """Say that what the jobs of a saved schedule were made of is still the same."""
    if saved is None:
        return []
    row = _row(saved)
    return [c[name] == row[name] for name in ("capability", "tenant", "user", "input")]


def listing(connection: sa.Connection) -> list[ScheduleState]:
    """Return all schedules by name."""
    query = sa.select(
        *(c.name, c.capability, c.cron, c.timezone, c.missed, c.next_at, c.last_at),
        *(c.paused, c.tenant, c.user, c.input),
    )
    return [
        ScheduleState(*row[:8], _owner(row.tenant, row.user), row.input)
        for row in connection.execute(query.order_by(c.name))
    ]


def _owner(tenant: str | None, user: str | None) -> Owner | None:
    return None if tenant is None or user is None else Owner(tenant, user)
