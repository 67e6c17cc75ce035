"""
The Tasks service's rows: requests, and the tasks that they become.

A request is `open` until it is called back. A failure closes it; a success makes its
task, once, even after a failure. Whatever comes after the task changes nothing.
A request whose client was told that it is `refused` never becomes a task: the client
may have asked again, and would have two.
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
FEW: Final = 5

r, s, t = requests.c, subtasks.c, tasks.c

_MINE = r.id == sa.bindparam("request")
_ACCEPT = requests.update().where(_MINE, r.ai_request_id.is_(None))
"""Built once, as is every statement that each sentence needs."""
_END = requests.update().where(_MINE)
_FIND = (
    sa.select(requests)
    .where(
        # It may come before the answer that told us the other id. Both are signed.
        sa.or_(
            r.ai_request_id == sa.bindparam("ai_request"),
            sa.and_(_MINE, r.ai_request_id.is_(None)),
        ),
    )
    .with_for_update()
)
_OLDEST = sa.select(r.id).order_by(r.id).limit(FEW).subquery()
_FORGET = requests.delete().where(
    r.id.in_(sa.select(_OLDEST.c.id)), r.created_at < sa.bindparam("before")
)
"""
Deletes a few of the oldest requests, of those that are from before a time.

Done with each new one, so there is no more to do than was ever added. Their tasks stay;
a callback for one of them is told that there is none.
"""
_ADD, _ADD_TASK, _ADD_STEPS = requests.insert(), tasks.insert(), subtasks.insert()


class Asked(NamedTuple):
    """What a client wants a task made of."""

    request_id: str
    owner: Owner
    sentence: str
    tokens: int
    """What it is expected to cost."""
    repeat: IdempotencyKey | None
    trace: str | None


class Held(NamedTuple):
    """The request that stands for what was asked, and what is held for it."""

    request_id: str
    is_repeat: bool
    """Whether it was asked for before, with the same idempotency key."""
    reservation: dict[str, int] | None
    """`None`: the AI service has the request, or had."""


class Ended(NamedTuple):
    """What a callback came to."""

    request: str
    task: Mapping[str, Any] | None
    is_news: bool = False
    """Whether it changed anything; the same again does not."""
    began_at: int = 0


def hold(tx: Transaction, asked: Asked, settings: TasksSettings, now: int) -> Held:
    """Write a request down and hold what it is expected to cost, or neither."""
    kept = timedelta(days=settings.keep_days) // timedelta(milliseconds=1)
    tx.connection.execute(_FORGET, {"before": now - kept})
    request_id, row = _opened(tx, asked, now)
    if row is not None and (row.ai_request_id or row.state != OPEN):
        return Held(request_id, is_repeat=True, reservation=None)
    # Held under its id: of a repeat that the AI service is asked for once more, what
    # was held the first time.
    until = now + int(settings.hold_seconds * 1000)
    reserved = tx.reserve(request_id, asked.tokens, asked.owner, until=until)
    start = reserved.window_start
    if start is None:
        asked_at = now if row is None else row.created_at
        start = asked_at - asked_at % (settings.window_seconds * 1000)
    held = {"tokensReserved": reserved.tokens_reserved, "windowStartTimestamp": start}
    return Held(request_id, row is not None, held)


def _opened(tx: Transaction, asked: Asked, now: int) -> tuple[str, Any]:
    """Return a new request's id, or with its row that of one with the same key."""
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
    """Note by which id the AI service knows a request."""
    noted = {"request": request_id, "ai_request_id": ai_request_id}
    tx.connection.execute(_ACCEPT, noted)


def refused(
    tx: Transaction, request_id: str, error: Mapping[str, Any], now: int
) -> None:
    """
    Close a request that the AI service did not take, and free what it holds.

    Its idempotency key is free again: nothing was done under it.
    """
    row = {"state": REFUSED, "error": error, "ended_at": now}
    tx.connection.execute(_END.where(r.state == OPEN), {"request": request_id, **row})
    tx.connection.execute(keys.delete().where(keys.c.request_id == request_id))
    tx.release(request_id)


def end(tx: Transaction, told: Success | Failure, new: str, now: int) -> Ended | None:
    """
    Take a callback in: write the task and reconcile the tokens, or neither.

    `new` is the id that a task gets. `None`: there is no such request.
    """
    row = _found(tx, told)
    if row is None:
        return None
    if row.ai_request_id is None:
        accepted(tx, row.id, told.ai_service_request_id)
    if row.state == CREATED:
        return Ended(row.id, _one(tx, t.request_id == row.id))
    if row.state == REFUSED:
        if isinstance(told, Success):
            tx.settle(row.id, told.tokens)
        return Ended(row.id, None)
    ended: dict[str, Any] = {"request": row.id, "ended_at": now}
    if isinstance(told, Failure):
        # If it was retried in vain, the last reason counts.
        error = told.error.model_dump(exclude_none=True)
        tx.connection.execute(_END, {**ended, "state": FAILED, "error": error})
        tx.release(row.id)
        return Ended(row.id, None, row.state == OPEN, row.created_at)
    tx.connection.execute(_END, {**ended, "state": CREATED, "error": None})
    task = _create(tx, row, told, new, now)
    tx.settle(row.id, told.tokens)
    return Ended(row.id, task, is_news=True, began_at=row.created_at)


def _found(tx: Transaction, told: Success | Failure) -> Any:
    """Find a callback's request, and have others wait who bring the same."""
    asked = {"ai_request": told.ai_service_request_id, "request": told.request_id}
    return tx.connection.execute(_FIND, asked).first()


def _create(
    tx: Transaction, row: Any, told: Success, new: str, now: int
) -> Mapping[str, Any]:
    parsed = told.result
    task = {
        "id": new,
        "tenant": row.tenant,
        "user": str(told.user_id),
        "request_id": row.id,
        "status": "todo",
        **parsed.model_dump(exclude={"due_date", "subtasks"}),
        "due_date": None if parsed.due_date is None else parsed.due_date.isoformat(),
        "natural_language": told.natural_language,
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
    """Return a request and the task that it became."""
    row = request(view, request_id, owner)
    return row, None if row is None else _one(view, t.request_id == row.id)


def show(view: View, task_id: str, owner: Owner) -> Mapping[str, Any] | None:
    """Return an owner's task, or `None`."""
    return _one(view, _is(task_id, owner))


def page(
    view: View, owner: Owner, query: Query
) -> tuple[Sequence[Mapping[str, Any]], str | None]:
    """Return some of an owner's tasks, newest first, and where to go on."""
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
    """Delete an owner's task; say whether there was one."""
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
    """Write tasks with their steps."""
    ids = [row.id for row in rows]
    found = sa.select(subtasks).where(s.task.in_(ids)).order_by(s.task, s.position)
    steps: dict[str, list[dict[str, Any]]] = {}
    for step in view.connection.execute(found) if ids else ():
        steps.setdefault(step.task, []).append({"title": step.title})
    return [{**row._asdict(), "subtasks": steps.get(row.id, [])} for row in rows]


def erase(tx: Transaction, owner: Owner, limit: int) -> int:
    """Delete some rows of a user; return how many, 0 if there are none left."""
    gone = erase_rows(tx, tasks, owner, limit, parts=[s.task])
    return gone or sum(erase_rows(tx, each, owner, limit) for each in (keys, requests))
