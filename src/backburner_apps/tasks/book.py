"""
Reads and writes the Tasks service's requests and tasks.

A request is `open` until its callback arrives. A failure closes it; a success creates
its task once, even after a failure. Callbacks after that change nothing.
A `refused` request never becomes a task: its client got an error and may have repeated
the request, which would create a second task.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from backburner import Owner, Transaction, View
from backburner.tables import erase_rows, owned_by, take_key
from backburner.web import IdempotencyKey, cursor_page
from backburner_apps.tasks.settings import TasksSettings
from backburner_apps.tasks.shapes import Change, Failure, Query, Success
from backburner_apps.tasks.tables import keys, requests, subtasks, tasks

OPEN: Final = "open"
CREATED: Final = "created"
FAILED: Final = "failed"
REFUSED: Final = "refused"
EXPIRED_PER_REQUEST: Final = 5
"""The number of expired requests that each new request deletes."""

r, s, t = requests.c, subtasks.c, tasks.c

_IS_REQUEST = r.id == sa.bindparam("request")
_ACCEPT = requests.update().where(_IS_REQUEST, r.ai_request_id.is_(None))
"""Built once, like every statement that each sentence needs."""
_END = requests.update().where(_IS_REQUEST)
_REFUSE = _END.where(r.state == OPEN, r.ai_request_id.is_(None))
_FIND = (
    sa.select(requests)
    .where(
        # The callback may arrive before the AI service's id is stored. Both ids are
        # signed.
        sa.or_(
            r.ai_request_id == sa.bindparam("ai_request"),
            sa.and_(_IS_REQUEST, r.ai_request_id.is_(None)),
        ),
    )
    .with_for_update()
)
_OLDEST = sa.select(r.id).order_by(r.id).limit(EXPIRED_PER_REQUEST).subquery()
_FORGET = requests.delete().where(
    r.id.in_(sa.select(_OLDEST.c.id)), r.created_at < sa.bindparam("before")
)
"""
Deletes a few of the oldest requests if they were created before a time.

It runs with each new request, so expired requests do not accumulate. Their tasks stay;
a callback for a deleted request gets 404.
"""
_ADD, _ADD_TASK, _ADD_STEPS = requests.insert(), tasks.insert(), subtasks.insert()


class Asked(NamedTuple):
    """A client's request to create a task from a sentence."""

    request_id: str
    owner: Owner
    sentence: str
    tokens: int
    """The number of tokens that it is expected to use."""
    repeat: IdempotencyKey | None
    trace: str | None


class Held(NamedTuple):
    """A stored request and the tokens held for it."""

    request_id: str
    is_repeat: bool
    """Whether it repeats a request with the same idempotency key."""
    reservation: dict[str, int] | None
    """`None`: the AI service already has the request, or the request is closed."""


class Ended(NamedTuple):
    """The effect of a callback."""

    request: str
    task: Mapping[str, Any] | None
    is_news: bool = False
    """Whether it changed the request; a repeated callback does not."""
    began_at: int = 0


def hold(tx: Transaction, asked: Asked, settings: TasksSettings, now: int) -> Held:
    """Store a request and hold its expected tokens, or do neither."""
    kept = timedelta(days=settings.keep_days) // timedelta(milliseconds=1)
    tx.connection.execute(_FORGET, {"before": now - kept})
    request_id, row = _opened(tx, asked, now)
    if row is not None and (row.ai_request_id or row.state != OPEN):
        return Held(request_id, is_repeat=True, reservation=None)
    # The hold belongs to the request's id: a repeat gets the first request's hold.
    until = now + int(settings.hold_seconds * 1000)
    reserved = tx.reserve(request_id, asked.tokens, asked.owner, until=until)
    start = reserved.window_start
    if start is None:
        asked_at = now if row is None else row.created_at
        start = asked_at - asked_at % (settings.window_seconds * 1000)
    held = {"tokensReserved": reserved.tokens_reserved, "windowStartTimestamp": start}
    return Held(request_id, row is not None, held)


def _opened(tx: Transaction, asked: Asked, now: int) -> tuple[str, Any]:
    """Add a request and return its id, or the id and row of the one with its key."""
    request_id, owner = asked.request_id, asked.owner
    if asked.repeat is not None:
        request_id = take_key(tx, keys, owner, asked.repeat, request_id, now=now)
        known = request(tx, request_id, owner)
        if known is not None:
            return request_id, known
    row = {"id": request_id, "tenant": owner.tenant, "user": owner.user}
    tx.connection.execute(_ADD, {**row, "state": OPEN, "created_at": now})
    return request_id, None


def accepted(tx: Transaction, request_id: str, ai_request_id: str) -> None:
    """Store the AI service's id of a request."""
    noted = {"request": request_id, "ai_request_id": ai_request_id}
    tx.connection.execute(_ACCEPT, noted)


def refused(
    tx: Transaction, request_id: str, error: Mapping[str, Any], now: int
) -> None:
    """
    Close a request that the AI service did not accept, and release its hold.

    Its idempotency key can be used again, because the request had no effect. Nothing
    changes if the AI service has accepted a repeat of the request in the meantime.
    """
    row = {"state": REFUSED, "error": error, "ended_at": now}
    if not tx.connection.execute(_REFUSE, {"request": request_id, **row}).rowcount:
        return
    tx.connection.execute(keys.delete().where(keys.c.request_id == request_id))
    tx.release(request_id)


def end(
    tx: Transaction, callback: Success | Failure, new: str, now: int
) -> Ended | None:
    """
    Apply a callback: store the task and settle the tokens, or do neither.

    `new` is the id for a new task. Returns `None` if there is no such request.
    """
    row = _found(tx, callback)
    if row is None:
        return None
    if row.ai_request_id is None:
        accepted(tx, row.id, callback.ai_service_request_id)
    if row.state == CREATED:
        return Ended(row.id, _one(tx, t.request_id == row.id))
    if row.state == REFUSED:
        if isinstance(callback, Success):
            tx.settle(row.id, callback.tokens)
        return Ended(row.id, None)
    ended: dict[str, Any] = {"request": row.id, "ended_at": now}
    if isinstance(callback, Failure):
        # After an unsuccessful retry, keep the error of the last run.
        error = callback.error.model_dump(exclude_none=True)
        tx.connection.execute(_END, {**ended, "state": FAILED, "error": error})
        tx.release(row.id)
        return Ended(row.id, None, row.state == OPEN, row.created_at)
    tx.connection.execute(_END, {**ended, "state": CREATED, "error": None})
    task = _create(tx, row, callback, new, now)
    tx.settle(row.id, callback.tokens)
    return Ended(row.id, task, is_news=True, began_at=row.created_at)


def _found(tx: Transaction, callback: Success | Failure) -> Any:
    """Return a callback's request, locked against a concurrent repeat."""
    asked = {
        "ai_request": callback.ai_service_request_id,
        "request": callback.request_id,
    }
    return tx.connection.execute(_FIND, asked).first()


def _create(
    tx: Transaction, row: Any, callback: Success, new: str, now: int
) -> Mapping[str, Any]:
    parsed = callback.result
    task = {
        "id": new,
        "tenant": row.tenant,
        "user": str(callback.user_id),
        "request_id": row.id,
        "status": "todo",
        **parsed.model_dump(exclude={"due_date", "subtasks"}),
        "due_date": None if parsed.due_date is None else parsed.due_date.isoformat(),
        "natural_language": callback.natural_language,
        "created_at": now,
        "updated_at": now,
    }
    tx.connection.execute(_ADD_TASK, task)
    steps = [{"title": step.title} for step in parsed.subtasks]
    if steps:
        rows = [{"task": new, "position": n, **step} for n, step in enumerate(steps)]
        tx.connection.execute(_ADD_STEPS, rows)
    return {**task, "subtasks": steps}


def request(view: View, request_id: str, owner: Owner) -> Any:
    """Return an owner's request, or `None`."""
    mine = sa.and_(r.id == request_id, owned_by(requests, owner))
    return view.connection.execute(sa.select(requests).where(mine)).first()


def of_request(
    view: View, request_id: str, owner: Owner
) -> tuple[Any, Mapping[str, Any] | None]:
    """Return a request and its task, each of which may be `None`."""
    row = request(view, request_id, owner)
    return row, None if row is None else _one(view, t.request_id == row.id)


def show(view: View, task_id: str, owner: Owner) -> Mapping[str, Any] | None:
    """Return an owner's task, or `None`."""
    return _one(view, _is(task_id, owner))


def page(
    view: View, owner: Owner, query: Query
) -> tuple[Sequence[Mapping[str, Any]], str | None]:
    """Return a page of an owner's tasks, newest first, and the next cursor."""
    wanted = query.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
    chosen = sa.select(tasks).where(owned_by(tasks, owner)).filter_by(**wanted)
    rows, cursor = cursor_page(view, chosen, t.id, query)
    return _whole(view, rows), cursor


def change(
    tx: Transaction, task_id: str, owner: Owner, change: Change, now: int
) -> Mapping[str, Any] | None:
    """Change an owner's task; return it, or `None`."""
    wanted = change.model_dump(mode="json", exclude_unset=True)
    tx.connection.execute(
        tasks.update().where(_is(task_id, owner)).values(**wanted, updated_at=now)
    )
    return show(tx, task_id, owner)


def drop(tx: Transaction, task_id: str, owner: Owner) -> bool:
    """Delete an owner's task; return whether it existed."""
    gone = tx.connection.execute(tasks.delete().where(_is(task_id, owner))).rowcount
    if gone:
        tx.connection.execute(subtasks.delete().where(s.task == task_id))
    return bool(gone)


def _is(task_id: str, owner: Owner) -> sa.ColumnElement[bool]:
    return sa.and_(t.id == task_id, owned_by(tasks, owner))


def _one(view: View, which: sa.ColumnElement[bool]) -> Mapping[str, Any] | None:
    rows = view.connection.execute(sa.select(tasks).where(which)).all()
    return next(iter(_whole(view, rows)), None)


def _whole(view: View, rows: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return tasks with their subtasks."""
    ids = [row.id for row in rows]
    found = sa.select(subtasks).where(s.task.in_(ids)).order_by(s.task, s.position)
    steps: dict[str, list[dict[str, Any]]] = {}
    for step in view.connection.execute(found) if ids else ():
        steps.setdefault(step.task, []).append({"title": step.title})
    return [{**row._asdict(), "subtasks": steps.get(row.id, [])} for row in rows]


def erase(tx: Transaction, owner: Owner, limit: int) -> int:
    """Delete up to `limit` rows of a user; return how many, 0 if none are left."""
    gone = erase_rows(tx, tasks, owner, limit, parts=[s.task])
    return gone or sum(erase_rows(tx, each, owner, limit) for each in (keys, requests))
