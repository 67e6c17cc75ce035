"""Policies of queues, on both databases; the statements of claims are in queries/."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import orjson
import sqlalchemy as sa

from backburner.domain.events.event import QUEUE_THROTTLED
from backburner.domain.jobs.job import Instant
from backburner.domain.queues.queue import Keep, Queue, QueueState, Rate, Throttling
from backburner.ports.store.maintenance import Retention
from backburner.ports.store.transactions import Tx
from backburner.stores.shared.settling import as_json
from backburner.stores.tables import events
from backburner.stores.tables import queues as queue_table

c = queue_table.c

# A declaration in code replaces an earlier one but keeps a pause. A window of another
# length starts again.
_DECLARE = sa.text("""
INSERT INTO queues (name, paused, concurrency, per_worker, rate, per, window_at,
                    started, closed, told, weights, waiting, keep)
VALUES (:name, :paused, :concurrency, :per_worker, :rate, :per, 0, 0, 0, 0, :weights,
        :waiting, :keep)
ON CONFLICT (name) DO UPDATE SET
  concurrency = excluded.concurrency, per_worker = excluded.per_worker,
  rate = excluded.rate, per = excluded.per,
  weights = excluded.weights, waiting = excluded.waiting, keep = excluded.keep,
  started = CASE WHEN queues.per = excluded.per THEN queues.started ELSE 0 END,
  window_at = CASE WHEN queues.per = excluded.per THEN queues.window_at ELSE 0 END,
  limited_until = CASE WHEN queues.per = excluded.per AND queues.rate = excluded.rate
                       THEN queues.limited_until END
""")
_PAUSE = sa.text("""
INSERT INTO queues (name, paused, per, window_at, started, closed, told)
VALUES (:name, :paused, 0, 0, 0, 0, 0)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused
""")


def declare(queues: Sequence[Queue]) -> Callable[[Tx], None]:
    """Return a body that stores policies, in the same order for all callers."""
    rows = [
        {
            "name": queue.name,
            "paused": False,
            "concurrency": queue.concurrency,
            "per_worker": queue.per_worker,
            "rate": queue.rate.limit if queue.rate else None,
            "per": queue.rate.per // timedelta(milliseconds=1) if queue.rate else 0,
            "weights": as_json(dict(queue.weights)) if queue.weights else None,
            "waiting": queue.waiting,
            "keep": _written(queue.keep),
        }
        for queue in sorted(queues, key=lambda queue: queue.name)
    ]

    def body(tx: Tx) -> None:
        for row in rows:
            tx.connection.execute(_DECLARE, row)

    return body


def _written(keep: Keep | None) -> str | None:
    """Convert a policy for storage; ages are in milliseconds."""
    if keep is None:
        return None
    ages = (keep.succeeded, keep.failed)
    spans = [None if age is None else age // _MILLISECOND for age in ages]
    return as_json([*spans, keep.succeeded_count, keep.failed_count])


def _as_keep(text: str | None) -> Keep | None:
    if text is None:
        return None
    *spans, succeeded_count, failed_count = orjson.loads(text)
    succeeded, failed = (None if n is None else n * _MILLISECOND for n in spans)
    return Keep(succeeded, failed, succeeded_count, failed_count)


_MILLISECOND = timedelta(milliseconds=1)


def policies(connection: sa.Connection) -> dict[str, Keep]:
    """Return the retention policies of the queues that have one."""
    query = sa.select(c.name, c.keep).where(c.keep.is_not(None))
    by_name = {name: _as_keep(keep) for name, keep in connection.execute(query)}
    return {name: keep for name, keep in by_name.items() if keep is not None}


def pause(name: str, *, paused: bool) -> Callable[[Tx], None]:
    """Return a body that pauses or resumes a queue."""

    def body(tx: Tx) -> None:
        tx.connection.execute(_PAUSE, {"name": name, "paused": paused})

    return body


def tell(now: Instant) -> Callable[[Tx], list[Throttling]]:
    """Return a body that adds an event for each closed window, once."""

    def body(tx: Tx) -> list[Throttling]:
        query = sa.select(c.name, c.closed, c.told, c.limited_until)
        untold = tx.connection.execute(query.where(c.closed > c.told).order_by(c.name))
        throttlings: list[Throttling] = []
        for name, closed, reported, until in untold.all():
            update = queue_table.update().where(c.name == name, c.told == reported)
            if tx.connection.execute(update.values(told=closed)).rowcount:
                throttlings.append(Throttling(name, closed - reported, until or 0))
                shared = {"queue": name, "type": QUEUE_THROTTLED, "at": now}
                data = as_json({"limited_until": until})
                tx.connection.execute(
                    events.insert(),
                    [
                        {**shared, "n": n, "data": data}
                        for n in range(reported + 1, closed + 1)
                    ],
                )
        return throttlings

    return body


def prune(keep: Retention, now: Instant, limit: int) -> Callable[[Tx], None]:
    """Return a body that deletes old events of queues and lanes."""

    def body(tx: Tx) -> None:
        before = now - max(keep) // timedelta(milliseconds=1)
        e = events.c
        # Their numbers and times have nearly the same order: the oldest come first.
        first = sa.select(e.seq, e.at).where(sa.text("events.queue IS NOT NULL"))
        some = first.order_by(e.seq).limit(limit).subquery()
        old = sa.select(some.c.seq).where(some.c.at <= before)
        tx.connection.execute(events.delete().where(e.seq.in_(old)))

    return body


def listing(connection: sa.Connection, now: Instant) -> list[QueueState]:
    """Return every queue that has a policy or was ever paused."""
    return [
        QueueState(
            name=name,
            paused=paused,
            concurrency=concurrency,
            per_worker=per_worker,
            rate=Rate(rate, timedelta(milliseconds=per)) if rate else None,
            limited_until=until if until and until > now else None,
            opens_in=until - now if until and until > now else None,
            untold=untold,
            weights=orjson.loads(weights) if weights else {},
            waiting=waiting,
            keep=_as_keep(keep),
        )
        for (
            name,
            paused,
            concurrency,
            per_worker,
            rate,
            per,
            until,
            untold,
            weights,
            waiting,
            keep,
        ) in connection.execute(_LISTING)
    ]


# Built once: every worker runs it every second.
_LISTING = sa.select(
    c.name,
    c.paused,
    c.concurrency,
    c.per_worker,
    c.rate,
    c.per,
    c.limited_until,
    c.closed - c.told,
    c.weights,
    c.waiting,
    c.keep,
).order_by(c.name)
