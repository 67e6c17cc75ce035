"""
Totals of ended jobs per queue; they outlive the jobs.

Every transaction that ends jobs adds a row for each queue and state. Upkeep replaces
many rows by their sum. Existing rows are never changed, so settlements do not wait for
each other.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import sqlalchemy as sa

from backburner.domain.jobs.job import JobState
from backburner.domain.queues.queue import Totals
from backburner.ports.store.transactions import Tx
from backburner.stores.tables import totals as table

t = table.c
NAMES = {
    JobState.SUCCEEDED: "completed",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
}


class CountingTx(Protocol):
    """A transaction that can count ended jobs."""

    @property
    def queries(self) -> Any:
        """The statements of the database."""
        ...

    def rows(self, statement: str, *parameters: Any) -> Any:
        """Run a statement and return its rows."""
        ...

    def columns(self, rows: Any) -> Any:
        """Convert rows for the statements."""
        ...


def count_ends(tx: CountingTx, ended: Iterable[tuple[str, str]]) -> None:
    """Count ended jobs by queue and state; states that are not final do not count."""
    _add(tx, Counter(end for end in ended if end[1] in NAMES))


def count_successes(tx: CountingTx, queues: Iterable[str]) -> None:
    """Count succeeded jobs by queue."""
    counted = Counter(queues)
    _add(tx, {(queue, JobState.SUCCEEDED): n for queue, n in counted.items()})


def _add(tx: CountingTx, counted: Mapping[tuple[str, str], int]) -> None:
    if counted:
        rows = [(queue, state, n) for (queue, state), n in sorted(counted.items())]
        tx.rows(tx.queries.insert_totals, *tx.columns(rows))


def read(connection: sa.Connection) -> Mapping[str, Totals]:
    """Return the totals of each queue, by the queue's name."""
    query = sa.select(t.queue, t.state, sa.func.sum(t.n)).group_by(t.queue, t.state)
    by_queue: defaultdict[str, Totals] = defaultdict(Totals)
    for queue, state, n in connection.execute(query.order_by(t.queue)):
        by_queue[queue] = by_queue[queue]._replace(**{NAMES[state]: int(n)})
    return by_queue


def compact(limit: int) -> Callable[[Tx], int]:
    """Return a body that replaces the oldest rows by sums, and returns how many."""

    def body(tx: Tx) -> int:
        groups, rows = tx.connection.execute(_COUNT, {"n": limit}).one()
        if rows == groups:
            return 0  # each row is a sum already
        some = sa.select(t.seq).order_by(t.seq).limit(limit)
        some = some.with_for_update(skip_locked=True)
        gone = table.delete().where(t.seq.in_(some)).returning(t.queue, t.state, t.n)
        sums: Counter[tuple[str, str]] = Counter()
        taken = tx.connection.execute(gone).all()
        for queue, state, n in taken:
            sums[queue, state] += n
        kept = [{"queue": q, "state": s, "n": n} for (q, s), n in sums.items()]
        if kept:
            tx.connection.execute(table.insert(), kept)
        return len(taken) - len(kept)

    return body


_COUNT = sa.text("""
SELECT count(*), coalesce(sum(n), 0) FROM (
  SELECT count(*) AS n FROM (SELECT queue, state FROM totals LIMIT :n) AS first
   GROUP BY queue, state) AS groups
""")
"""The number of sums that the first rows would become, and the number of these rows."""
