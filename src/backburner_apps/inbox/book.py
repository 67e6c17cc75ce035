"""
Reads and writes the inbox's users, records of messages, tasks and undelivered replies.

A record is `PROCESSING` when its message is submitted. The transaction that stores the
effect of the message closes the record as `SUCCESS` or `FALLBACK`; only one can.
`FAILED` means that the job is a dead letter: its retry may still store the effect.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import uuid4

import sqlalchemy as sa

from backburner import Owner, Transaction, View, erase_rows
from backburner.tables import insert, owned_by
from backburner_apps.inbox.shapes import Message, TelegramUser
from backburner_apps.inbox.tables import (
    ACTIVE,
    outbox,
    records,
    subtasks,
    tasks,
    users,
)

PROCESSING: Final = "PROCESSING"
SUCCESS: Final = "SUCCESS"
FALLBACK: Final = "FALLBACK"
FAILED: Final = "FAILED"
TODO: Final = "TODO"
PARSE_FAILED: Final = "PARSE_FAILED"
DONE: Final = "DONE"
EXPIRED_PER_MESSAGE: Final = 5
"""The number of expired records that each new message deletes."""
MOST_REPLIES: Final = 200

o, r, s, t, u = outbox.c, records.c, subtasks.c, tasks.c, users.c


class Key(NamedTuple):
    """The queue and idempotency key that identify a message."""

    queue: str
    key: str


class NewTask(NamedTuple):
    """A task to store."""

    title: str
    status: str = TODO
    summary: str | None = None
    deadline: str | None = None
    project_hint: str | None = None
    steps: Sequence[str] = ()
    original_input: str | None = None
    original_input_type: str | None = None


# --- users ---------------------------------------------------------------------------


def keep_user(
    tx: Transaction, owner: Owner, user: TelegramUser, correlation_id: str
) -> None:
    """Insert or update the sender of a message."""
    now = tx.now()
    changes = {
        **user.model_dump(exclude={"id", "is_bot"}),
        "telegram_id": user.id,
        "correlation_id": correlation_id,
        "updated_at": now,
    }
    row = {**_of(owner), **changes, "last_number": 0, "created_at": now}
    added = insert(tx.connection, users).values(row)
    tx.connection.execute(
        added.on_conflict_do_update(index_elements=["tenant", "user"], set_=changes)
    )


def language_code(view: View, owner: Owner) -> str | None:
    """Return the last known language code of a user."""
    mine = sa.select(u.language_code).where(owned_by(users, owner))
    code: str | None = view.connection.execute(mine).scalar()
    return code


def _take_numbers(tx: Transaction, owner: Owner, count: int) -> int:
    """Reserve `count` numbers for a user's new tasks; return the first one."""
    now = tx.now()
    row = {**_of(owner), "last_number": count, "created_at": now, "updated_at": now}
    added = insert(tx.connection, users).values(row)
    taken = added.on_conflict_do_update(
        index_elements=["tenant", "user"], set_={"last_number": u.last_number + count}
    ).returning(u.last_number)
    last: int = tx.connection.execute(taken).scalar_one()
    return last - count + 1


# --- records -------------------------------------------------------------------------


def open_record(
    tx: Transaction,
    owner: Owner,
    key: Key,
    correlation_id: str,
    status: str = PROCESSING,
    payload: Mapping[str, Any] | None = None,
) -> bool:
    """Store a record of a message; return `False` if it exists already."""
    now = tx.now()
    row = {
        "id": f"idem_{uuid4().hex}",
        **_of(owner),
        "queue_name": key.queue,
        "idempotency_key": key.key,
        "status": status,
        "correlation_id": correlation_id,
        "result_payload": payload,
        "created_at": now,
        "updated_at": now,
        "completed_at": None if status == PROCESSING else now,
    }
    added = insert(tx.connection, records).values(row)
    done = tx.connection.execute(
        added.on_conflict_do_nothing(
            index_elements=["queue_name", "idempotency_key"], index_where=ACTIVE
        )
    )
    return bool(done.rowcount)


def find_record(view: View, key: Key) -> Any:
    """Return the record of a message, or `None`."""
    return view.connection.execute(sa.select(records).where(*_keyed(key))).first()


def close_record(
    tx: Transaction, key: Key, status: str, payload: Mapping[str, Any]
) -> bool:
    """Close a record in the transaction of its effect; `False` if none is open."""
    now = tx.now()
    done = tx.connection.execute(
        records.update()
        .where(*_keyed(key), r.status.in_([PROCESSING, FAILED]))
        .values(status=status, result_payload=payload, updated_at=now, completed_at=now)
    )
    return bool(done.rowcount)


def fail_record(tx: Transaction, key: Key, code: str) -> bool:
    """Mark a message as a dead letter; return `False` if it is not processing."""
    done = tx.connection.execute(
        records.update()
        .where(*_keyed(key), r.status == PROCESSING)
        .values(status=FAILED, result_payload={"code": code}, updated_at=tx.now())
    )
    return bool(done.rowcount)


def forget_records(tx: Transaction, before: int) -> None:
    """Delete a few of the oldest records if they were created before a time."""
    oldest = (
        sa.select(r.id).order_by(r.created_at).limit(EXPIRED_PER_MESSAGE).subquery()
    )
    tx.connection.execute(
        records.delete().where(
            r.id.in_(sa.select(oldest.c.id)),
            r.created_at < before,
            r.status != PROCESSING,
        )
    )


def _keyed(key: Key) -> tuple[sa.ColumnElement[bool], ...]:
    same = r.queue_name == key.queue, r.idempotency_key == key.key
    return (*same, r.deleted_at.is_(None))


# --- tasks ---------------------------------------------------------------------------


def add_tasks(
    tx: Transaction,
    owner: Owner,
    message: Message,
    new: Sequence[NewTask],
    *,
    source: str,
) -> list[int]:
    """Store tasks with their subtasks; return their numbers."""
    now, first = tx.now(), _take_numbers(tx, owner, len(new))
    numbers = list(range(first, first + len(new)))
    for number, task in zip(numbers, new, strict=True):
        row = {
            "id": f"task_{uuid4().hex}",
            **_of(owner),
            "number": number,
            **task._asdict(),
            "source": source,
            "source_type": message.source_type,
            "telegram_chat_id": message.telegram_chat_id,
            "telegram_message_id": message.telegram_message_id,
            "correlation_id": message.correlation_id,
            "created_at": now,
            "updated_at": now,
        }
        del row["steps"]
        tx.connection.execute(tasks.insert(), row)
        steps = [
            {
                "task": row["id"],
                "position": place,
                "title": step,
                "correlation_id": message.correlation_id,
            }
            for place, step in enumerate(task.steps)
        ]
        if steps:
            tx.connection.execute(subtasks.insert(), steps)
    return numbers


def open_tasks(view: View, owner: Owner, limit: int) -> tuple[Sequence[Any], int]:
    """Return up to `limit` of a user's open tasks, oldest first, and their total."""
    mine = (owned_by(tasks, owner), t.status != DONE)
    listed = sa.select(tasks).where(*mine).order_by(t.number).limit(limit)
    total = view.connection.execute(
        sa.select(sa.func.count()).select_from(tasks).where(*mine)
    ).scalar_one()
    return view.connection.execute(listed).all(), total


def finish_task(tx: Transaction, owner: Owner, number: int) -> tuple[Any, bool]:
    """Mark a task as done; return the task or `None`, and whether it was open."""
    this = (owned_by(tasks, owner), t.number == number)
    changed = tx.connection.execute(
        tasks.update()
        .where(*this, t.status != DONE)
        .values(status=DONE, updated_at=tx.now())
    ).rowcount
    row = tx.connection.execute(sa.select(tasks).where(*this)).first()
    return row, bool(changed)


# --- replies without a bot -----------------------------------------------------------


def add_reply(tx: Transaction, owner: Owner, reply: Mapping[str, Any]) -> None:
    """Store a reply for the outbox page, and delete the oldest above the limit."""
    row = {"id": f"reply_{uuid4().hex}", **_of(owner), **reply, "created_at": tx.now()}
    tx.connection.execute(outbox.insert(), row)
    kept = sa.select(o.id).order_by(o.created_at.desc(), o.id).limit(MOST_REPLIES)
    tx.connection.execute(outbox.delete().where(o.id.not_in(kept)))


def replies(view: View, tenant: str, user: str | None, limit: int) -> Sequence[Any]:
    """Return the newest replies of a tenant, or of one of its users."""
    mine = [o.tenant == tenant, *([] if user is None else [o.user == user])]
    newest = sa.select(outbox).where(*mine).order_by(o.created_at.desc(), o.id)
    rows: Sequence[Any] = view.connection.execute(newest.limit(limit)).all()
    return rows


def erase(tx: Transaction, owner: Owner, limit: int) -> int:
    """Delete up to `limit` rows of a user; return how many, 0 if none are left."""
    gone = erase_rows(tx, tasks, owner, limit, parts=[s.task])
    rest = (outbox, records, users)
    return gone or sum(erase_rows(tx, table, owner, limit) for table in rest)


def _of(owner: Owner) -> dict[str, str]:
    return {"tenant": owner.tenant, "user": owner.user}
