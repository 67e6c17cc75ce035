"""
Stores memories of conversations and finds those that are similar to a message.

A memory belongs to one user. Other users of the tenant see it only if its personality
has `sharedMemory`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from backburner import Owner, Transaction, View
from backburner.tables import insert
from backburner_apps.chat import personalities, rows
from backburner_apps.chat.personalities import Personality
from backburner_apps.chat.shapes import MAX_MEMORY, is_id
from backburner_apps.chat.tables import forgotten, memories
from backburner_apps.chat.vectors import nearest, packed

COMPARED: Final = 1_000
"""The number of newest memories that are compared with a question."""

Read = Callable[[Callable[[View], Any]], Awaitable[Any]]
"""Reads the database, such as `ctx.read` and `Backburner.read`."""
m = memories.c


class Embedded(NamedTuple):
    """A text's vector and its model; vectors of different models do not compare."""

    model: str
    vector: str

    @classmethod
    def of(cls, model: str, vector: Sequence[float]) -> "Embedded":
        """Pack a vector from a provider."""
        return cls(model, packed(vector))


class Memory(NamedTuple):
    """A stored text about an earlier exchange."""

    id: str
    content: str
    created_at: int


def visible(personality: Personality, owner: Owner) -> sa.ColumnElement[bool]:
    """Return the SQL condition for the memories that a user's prompt may contain."""
    theirs = sa.and_(m.tenant == owner.tenant, m.personality == personality.id)
    return theirs if personality.shared_memory else theirs & (m.user == owner.user)


async def similar(
    read: Read,
    personality: Personality,
    owner: Owner,
    question: Embedded,
    most: int,
) -> list[Memory]:
    """Return up to `most` memories that are similar to a question, best first."""
    if not most:
        return []
    query = (
        sa.select(m.id, m.content, m.created_at, m.vector)
        .where(visible(personality, owner), m.model == question.model)
        .order_by(m.created_at.desc(), m.id.desc())
        .limit(min(personality.memory_limit or COMPARED, COMPARED))
    )

    def look(view: View) -> list[tuple[Memory, str]]:
        return [(Memory(*row[:3]), row[3]) for row in view.connection.execute(query)]

    found = await read(look)
    # In a thread: a thousand long vectors take a tenth of a second.
    return await asyncio.to_thread(nearest, question.vector, found, most)


def remember(
    tx: Transaction,
    memory_id: str,
    owner: Owner,
    personality_id: str,
    content: str,
    embedded: Embedded,
) -> Memory:
    """Store a memory unless its id exists; return it."""
    # A model's text may contain U+0000, which PostgreSQL cannot store.
    kept = content.replace("\0", "")[:MAX_MEMORY]
    memory = Memory(memory_id, kept, tx.now())
    row = {
        **memory._asdict(),
        **embedded._asdict(),
        "tenant": owner.tenant,
        "user": owner.user,
        "personality": personality_id,
    }
    rows.add(tx.connection, memories, row)
    return memory


def forget(tx: Transaction, owner: Owner, personality_id: str) -> int:
    """
    Delete a personality's memories of a user; return how many.

    Jobs that were submitted before this moment store no memory when they end.
    """
    # Those that are being settled have stored theirs, or see the row below.
    if not personalities.lock(tx, owner.tenant, personality_id):
        return 0  # it was deleted, with its memories
    row = {"tenant": owner.tenant, "user": owner.user, "personality": personality_id}
    now = tx.now()
    new = insert(tx.connection, forgotten).values(**row, at=now)
    keys = ["tenant", "user", "personality"]
    tx.connection.execute(
        new.on_conflict_do_update(index_elements=keys, set_={"at": now})
    )
    mine = m.tenant == owner.tenant, m.user == owner.user
    done = memories.delete().where(*mine, m.personality == personality_id)
    return int(tx.connection.execute(done).rowcount)


def is_forgotten(view: View, owner: Owner, personality_id: str, since: int) -> bool:
    """
    Return whether a user has sent `/forget` at or after the time `since`.

    The answer holds until the transaction's end after `personalities.lock_shared`.
    """
    f = forgotten.c
    query = sa.select(f.at).where(
        f.tenant == owner.tenant,
        f.user == owner.user,
        f.personality == personality_id,
        f.at >= since,
    )
    return view.connection.execute(query).first() is not None


def delete(tx: Transaction, owner: Owner, personality_id: str, memory_id: str) -> bool:
    """Delete one memory of a user; return whether it existed."""
    if not (is_id(personality_id) and is_id(memory_id)):
        return False
    mine = m.tenant == owner.tenant, m.user == owner.user
    one = memories.delete().where(
        *mine, m.personality == personality_id, m.id == memory_id
    )
    return bool(tx.connection.execute(one).rowcount)


def trim(tx: Transaction, tenant: str, personality: Personality, most: int) -> int:
    """Delete up to `most` of the oldest memories above a personality's limit."""
    if personality.memory_limit is None:
        return 0
    part: list[Any] = [] if personality.shared_memory else [m.user]
    place = sa.func.row_number().over(
        partition_by=part or None, order_by=(m.created_at.desc(), m.id.desc())
    )
    theirs = m.tenant == tenant, m.personality == personality.id
    placed = sa.select(m.id, place.label("place")).where(*theirs).subquery()
    over = (
        sa.select(placed.c.id)
        .where(placed.c.place > personality.memory_limit)
        .limit(most)
    )
    done = memories.delete().where(m.id.in_(over))
    return int(tx.connection.execute(done).rowcount)
