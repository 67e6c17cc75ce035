"""The workers that are enlisted, and whether they are drained."""

from collections.abc import Callable

import sqlalchemy as sa

from backburner.ports.store.transactions import Tx
from backburner.ports.store.workers import Vitals, WorkerInfo
from backburner.stores.tables import workers as worker_table


def workers(connection: sa.Connection) -> list[WorkerInfo]:
    """Return who is enlisted, the oldest first."""
    w = worker_table.c
    columns = (w.id, w.host, w.pid, w.slots, w.queues, w.started_at, w.draining)
    query = sa.select(*columns, w.running, w.lag_ms, w.memory)
    rows = connection.execute(query.order_by(w.started_at, w.id))
    return [
        WorkerInfo(
            row.id,
            row.host,
            row.pid,
            row.slots,
            tuple(row.queues.split("\n")),
            row.started_at,
            row.draining,
            None if row.lag_ms is None else Vitals(row.running, row.lag_ms, row.memory),
        )
        for row in rows
    ]


def is_draining(connection: sa.Connection, worker: str) -> bool | None:
    """Say whether a worker is to claim nothing; `None`: it is not enlisted."""
    return connection.execute(_DRAINING, {"worker": worker}).scalar()


# Built once: every worker asks every two seconds.
_DRAINING = sa.select(worker_table.c.draining).where(
    worker_table.c.id == sa.bindparam("worker")
)


def drain(worker: str, *, draining: bool) -> Callable[[Tx], bool]:
    """Return a body that marks a worker, and says whether it is enlisted."""
    marked = worker_table.update().where(worker_table.c.id == worker)

    def body(tx: Tx) -> bool:
        marking = marked.values(draining=draining)
        return bool(tx.connection.execute(marking).rowcount)

    return body
