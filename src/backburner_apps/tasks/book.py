"""
The Tasks service's rows: requests, and the tasks that they become.

A request is `open` until it is called back. A failure closes it; a success makes its
task, once, even after a failure. Whatever comes after the task changes nothing.
A request whose client was told that it is `refused` never becomes a task: the client
may have asked again, and would have two.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from backburner import IdempotencyConflict, Owner, Transaction, View, erase_rows
from backburner_apps.tasks.shapes import Change, Failure, Query, Success, plain
from backburner_apps.tasks.tables import keys, requests, subtasks, tasks

OPEN: Final = "open"
CREATED: Final = "created"
FAILED: Final = "failed"
REFUSED: Final = "refused"
FEW: Final = 5
KEY_MS: Final = 24 * 60 * 60 * 1000
"""How long an idempotency key stands for its request."""

k, r, s, t = keys.c, requests.c, subtasks.c, tasks.c

_MINE = r.id == sa.bindparam("request")
_ACCEPT = requests.update().where(_MINE, r.ai_request_id.is_(None))
"""Built once, as is every statement that each sentence needs."""
_CREATE = requests.update().where(_MINE)
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
_TAKE_KEY = sa.text(
    'INSERT INTO tasks_keys (tenant, "user", "key", digest, request_id, created_at) '
    "VALUES (:tenant, :user, :key, :digest, :request_id, :created_at) "
    "ON CONFLICT DO NOTHING"
)
_ADD, _ADD_TASK, _ADD_STEPS = requests.insert(), tasks.insert(), subtasks.insert()


class Repeat(NamedTuple):
    """A client's idempotency key, and a digest of what it asks for with it."""

    key: str
    digest: str


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


def first_of(
    tx: Transaction, request_id: str, owner: Owner, repeat: Repeat, now: int
) -> str:
    """
    Return the request that an idempotency key stands for: this one if it is new.

    Whoever comes at the same time waits for the other's commit.
    """
    tx.connection.execute(keys.delete().where(k.created_at <= now - KEY_MS))
    row = {"tenant": owner.tenant, "user": owner.user, "key": repeat.key}
    new = {"digest": repeat.digest, "request_id": request_id, "created_at": now}
    tx.connection.execute(_TAKE_KEY, {**row, **new})
    mine = [keys.c[name] == value for name, value in row.items()]
    found = tx.connection.execute(sa.select(keys).where(*mine)).one()
    if found.digest != repeat.digest:
        raise IdempotencyConflict(
            "the Idempotency-Key was used within a day for another body"
        )
    return str(found.request_id)


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
    """
    Close a request that the AI service did not take, and free what it holds.

    Its idempotency key is free again: nothing was done under it.
    """
    mine = sa.and_(r.id == request_id, r.state == OPEN)
    tx.connection.execute(
        requests.update().where(mine).values(state=REFUSED, error=error, ended_at=now)
    )
    tx.connection.execute(keys.delete().where(k.request_id == request_id))
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
        return Ended(row.id, _of_request(tx, row.id), is_news=False, began_at=0)
    if row.state == REFUSED:
        if isinstance(told, Success):
            tx.settle(row.id, told.tokens)
        return Ended(row.id, None, is_news=False, began_at=0)
    if isinstance(told, Failure):
        return _fail(tx, row, told, now)
    return _create(tx, row, told, new, now)


def _found(tx: Transaction, told: Success | Failure) -> Any:
    """Find a callback's request, and have others wait who bring the same."""
    asked = {"ai_request": told.ai_service_request_id, "request": told.request_id}
    return tx.connection.execute(_FIND, asked).first()


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
        "user": str(told.user_id),
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


def erase(tx: Transaction, owner: Owner, limit: int) -> int:
    """Delete some rows of a user; return how many, 0 if there are none left."""
    mine = sa.select(t.id).where(t.tenant == owner.tenant, t.user == owner.user)
    some = mine.order_by(t.id).limit(limit)
    tx.connection.execute(subtasks.delete().where(s.task.in_(some)))
    found = tx.connection.execute(some).scalars().all()
    if found:
        tx.connection.execute(tasks.delete().where(t.id.in_(found)))
        return len(found)
    return sum(erase_rows(tx, table, owner, limit) for table in (keys, requests))
