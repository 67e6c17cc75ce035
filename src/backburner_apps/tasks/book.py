"""
The Tasks service's rows: requests, and the tasks that they become.

A request is `open` until it is called back. A failure closes it; a success makes its
task, once, even after a failure. Whatever comes after the task changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from backburner import Owner, Transaction, View
from backburner_apps.tasks.shapes import Change, Failure, Query, Success, plain
from backburner_apps.tasks.tables import requests, subtasks, tasks

OPEN: Final = "open"
CREATED: Final = "created"
FAILED: Final = "failed"
FEW: Final = 5

r, s, t = requests.c, subtasks.c, tasks.c

_MINE = r.id == sa.bindparam("request")
_ACCEPT = requests.update().where(_MINE, r.ai_request_id.is_(None))
"""Built once, as is every statement that each sentence needs."""
_CREATE = requests.update().where(_MINE)
_FIND = (
    sa.select(requests)
    .where(
        # It may come before the answer that told us the other id.
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
_ADD, _ADD_TASK, _ADD_STEPS = requests.insert(), tasks.insert(), subtasks.insert()


class Ended(NamedTuple):
    """What a callback came to."""

    request: str
    task: Mapping[str, Any] | None
    is_news: bool
    """Whether it changed anything; the same again does not."""
    began_at: int


def add(tx: Transaction, request_id: str, owner: Owner, now: int) -> None:
    """Write down a request before anybody is asked to do it."""
    row = {"id": request_id, "tenant": owner.tenant, "user": owner.user}
    tx.connection.execute(_ADD, {**row, "state": OPEN, "created_at": now})


def forget(tx: Transaction, before: int) -> None:
    """
    Take out a few of the oldest requests, of those that are from before a time.

    Done with each new one, so there is no more to do than was ever added. Their tasks
    stay; who calls back for one of them is told that there is none.
    """
    tx.connection.execute(_FORGET, {"before": before})


def accepted(tx: Transaction, request_id: str, ai_request_id: str) -> None:
    """Note by which id the AI service knows a request."""
    told = {"request": request_id, "ai_request_id": ai_request_id}
    tx.connection.execute(_ACCEPT, told)


def refused(
    tx: Transaction, request_id: str, error: Mapping[str, Any], now: int
) -> None:
    """Close a request that the AI service did not take, and free what it holds."""
    mine = sa.and_(r.id == request_id, r.state == OPEN)
    tx.connection.execute(
        requests.update().where(mine).values(state=FAILED, error=error, ended_at=now)
    )
    tx.release(request_id)


def end(
    tx: Transaction,
    told: Success | Failure,
    known_as: str,
    new: str,
    now: int,
) -> Ended | None:
    """
    Take a callback in: write the task and reconcile the tokens, or neither.

    `known_as` is the request's id as the callback's header has it, `new` the id that a
    task gets. `None`: there is no such request.
    """
    row = _found(tx, told, known_as)
    if row is None:
        return None
    if row.ai_request_id is None:
        accepted(tx, row.id, told.ai_service_request_id)
    if row.state == CREATED:
        return Ended(row.id, _of_request(tx, row.id), is_news=False, began_at=0)
    if isinstance(told, Failure):
        return _fail(tx, row, told, now)
    return _create(tx, row, told, new, now)


def _found(tx: Transaction, told: Success | Failure, known_as: str) -> Any:
    """Find a callback's request, and have others wait who bring the same."""
    asked = {"ai_request": told.ai_service_request_id, "request": known_as}
    row = tx.connection.execute(_FIND, asked).first()
    # Either name may have a slash in it, so they are compared as they were sent.
    is_theirs = row is not None and f"{row.tenant}/{row.user}" == told.user_id
    return row if is_theirs else None


def _fail(tx: Transaction, row: Any, told: Failure, now: int) -> Ended:
    # If it was retried in vain, the last reason counts.
    tx.connection.execute(
        requests.update()
        .where(r.id == row.id)
        .values(state=FAILED, error=plain(told.error), ended_at=now)
    )
    tx.release(row.id)
    return Ended(row.id, None, row.state == OPEN, row.created_at)


def _create(tx: Transaction, row: Any, told: Success, new: str, now: int) -> Ended:
    found = told.result
    task = {
        "id": new,
        "tenant": row.tenant,
        "user": row.user,
        "request_id": row.id,
        "status": "todo",
        "title": found.title,
        "description": found.description,
        "due_date": None if found.due_date is None else found.due_date.isoformat(),
        "priority": found.priority,
        "category": found.category,
        "recurrence": found.recurrence,
        "natural_language": told.natural_language,
        "created_at": now,
        "updated_at": now,
    }
    tx.connection.execute(_ADD_TASK, task)
    steps = [{"title": step.title} for step in found.subtasks]
    if steps:
        rows = [{"task": new, "position": n, **step} for n, step in enumerate(steps)]
        tx.connection.execute(_ADD_STEPS, rows)
    created = {"request": row.id, "state": CREATED, "error": None, "ended_at": now}
    tx.connection.execute(_CREATE, created)
    tx.settle(row.id, told.tokens)
    whole = {**task, "subtasks": steps}
    return Ended(row.id, whole, is_news=True, began_at=row.created_at)


def request(view: View, request_id: str, owner: Owner) -> Any:
    """Return an owner's request, or `None`."""
    mine = sa.and_(r.id == request_id, r.tenant == owner.tenant, r.user == owner.user)
    return view.connection.execute(sa.select(requests).where(mine)).first()


def _of_request(view: View, request_id: str) -> Mapping[str, Any] | None:
    row = view.connection.execute(
        sa.select(tasks).where(t.request_id == request_id)
    ).first()
    return None if row is None else _whole(view, [row])[0]


def of_request(
    view: View, request_id: str, owner: Owner
) -> tuple[Any, Mapping[str, Any] | None]:
    """Return a request and the task that it became."""
    row = request(view, request_id, owner)
    return row, None if row is None else _of_request(view, row.id)


def show(view: View, task_id: str, owner: Owner) -> Mapping[str, Any] | None:
    """Return an owner's task, or `None`."""
    row = view.connection.execute(sa.select(tasks).where(_is(task_id, owner))).first()
    return None if row is None else _whole(view, [row])[0]


def page(
    view: View, owner: Owner, query: Query
) -> tuple[Sequence[Mapping[str, Any]], str | None]:
    """Return some of an owner's tasks, newest first, and where to go on."""
    wanted = [t.tenant == owner.tenant, t.user == owner.user]
    for column, value in (
        (t.status, query.status),
        (t.priority, query.priority),
        (t.category, query.category),
    ):
        if value is not None:
            wanted.append(column == value)
    if query.cursor is not None:
        wanted.append(t.id < query.cursor)
    chosen = sa.select(tasks).where(*wanted).order_by(t.id.desc())
    rows = view.connection.execute(chosen.limit(query.limit + 1)).all()
    shown = _whole(view, rows[: query.limit])
    return shown, shown[-1]["id"] if len(rows) > query.limit else None


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
    mine = sa.and_(t.tenant == owner.tenant, t.user == owner.user)
    return sa.and_(t.id == task_id, mine)


def _whole(view: View, rows: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Write tasks with their steps."""
    ids = [row.id for row in rows]
    found = sa.select(subtasks).where(s.task.in_(ids)).order_by(s.task, s.position)
    steps: dict[str, list[dict[str, Any]]] = {}
    for step in view.connection.execute(found) if ids else ():
        steps.setdefault(step.task, []).append({"title": step.title})
    names = tasks.columns.keys()
    return [
        {**dict(zip(names, row, strict=True)), "subtasks": steps.get(row.id, [])}
        for row in rows
    ]
