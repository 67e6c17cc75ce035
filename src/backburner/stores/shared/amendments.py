"""Changes by callers to jobs that have not started, on both databases."""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from backburner.domain.events.event import CHANGED
from backburner.domain.jobs.job import Job
from backburner.domain.queues.fairness import Share, cost
from backburner.ports.store.jobs import Amendment, Move
from backburner.stores.shared import sharing
from backburner.stores.shared.consequences import InternalTx
from backburner.stores.shared.settling import as_json
from backburner.stores.tables import events, jobs

c = jobs.c


def amend(job: Job, amendment: Amendment) -> Callable[[InternalTx], bool]:
    """Return a body that changes a job if it is unchanged, and adds an event."""
    same = c.seq == job.seq, c.state == job.state, c.generation == job.generation
    as_it_was = sa.select(c.seq).where(*same, c.events == job.events)

    def body(tx: InternalTx) -> bool:
        if tx.connection.execute(as_it_was.with_for_update()).first() is None:
            return False
        if amendment.change is not None:
            # Before the move, whose event includes both, because rows of jobs are
            # locked first.
            _set_priority(tx, job, amendment.priority, job.events)
            change = amendment.change._replace(data=_told(amendment))
            tx.move([Move(job.seq, job.state, job.generation, change)])
        elif amendment.priority is not None:
            _set_priority(tx, job, amendment.priority, job.events + 1)
            _tell(tx, job, {"priority": amendment.priority})
        return True

    return body


def _told(amendment: Amendment) -> dict[str, Any]:
    moved = {} if amendment.change is None else dict(amendment.change.data or {})
    if amendment.priority is None:
        return moved
    return {**moved, "priority": amendment.priority}


def _set_priority(tx: InternalTx, job: Job, priority: int | None, n: int) -> None:
    if priority is None:
        return
    values = {"priority": priority, "events": n}
    if priority != job.priority:
        values["rank"] = _change_line(tx, job, priority)
    tx.connection.execute(jobs.update().where(c.seq == job.seq).values(values))


def _change_line(tx: InternalTx, job: Job, priority: int) -> int:
    """
    Return a job's rank among those of another priority, as if it were submitted now.

    Ranks of two lines cannot be compared: an old line has served for much longer.
    """
    name = job.share or job.owner.user
    old = Share(job.queue, job.priority, job.owner.tenant, name)
    new, size = old._replace(priority=priority), cost(job.tokens)
    place = sharing.place(tx, {new: size}).places[new]
    tx.owe({old: -size, new: size})
    return place.start


def _tell(tx: InternalTx, job: Job, data: dict[str, Any]) -> None:
    row = {
        "job": job.seq,
        "n": job.events + 1,
        "type": CHANGED,
        "at": tx.now(),
        "data": as_json(data),
        "tenant": job.owner.tenant,
        "user": job.owner.user,
    }
    tx.connection.execute(events.insert().values(**row))
