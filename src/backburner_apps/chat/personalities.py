"""The personalities of a tenant: name, system prompt, model and memory."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from backburner import PermanentError, Transaction, View
from backburner_apps.chat import rows
from backburner_apps.chat.shapes import (
    MAX_ID,
    NewPersonality,
    PersonalityChange,
    is_id,
)
from backburner_apps.chat.tables import forgotten, memories, personalities

NOT_FOUND: Final = "PERSONALITY_NOT_FOUND"
MOST: Final = 1_000
"""Maximum number of personalities of a tenant."""

p = personalities.c
_FIELDS = (
    *(p.id, p.name, p.system_prompt, p.model, p.temperature),
    *(p.memory_limit, p.shared_memory, p.created_at),
)


class Personality(NamedTuple):
    """A character that replies to messages."""

    id: str
    name: str
    system_prompt: str
    model: str | None
    temperature: float | None
    memory_limit: int | None
    """Maximum memories per user, or for all users if shared; `None`: no limit."""
    shared_memory: bool
    """Whether replies to a user may use the memories of all users of the tenant."""
    created_at: int

    def wire(self) -> dict[str, Any]:
        """Return it as clients see it."""
        return {
            "id": self.id,
            "name": self.name,
            "systemPrompt": self.system_prompt,
            "llmConfig": {"model": self.model, "temperature": self.temperature},
            "memoryLimit": self.memory_limit,
            "sharedMemory": self.shared_memory,
        }


class PersonalityNotFound(PermanentError):
    """The personality does not exist in the tenant or was deleted."""

    code = NOT_FOUND

    def __init__(self, personality_id: str) -> None:
        super().__init__(f"Personality not found: {personality_id[:MAX_ID]}")


def find(view: View, tenant: str, personality_id: str) -> Personality:
    """Return a personality; raise `PersonalityNotFound`."""
    if not is_id(personality_id):
        raise PersonalityNotFound(personality_id)
    query = sa.select(*_FIELDS).where(p.tenant == tenant, p.id == personality_id)
    row = view.connection.execute(query).one_or_none()
    if row is None:
        raise PersonalityNotFound(personality_id)
    return Personality(*row)


def lock_shared(tx: Transaction, tenant: str, personality: Personality) -> bool:
    """
    Have the personality's deletion and `/forget` wait for this transaction's end.

    Returns whether the personality still exists. If it was deleted and its id was used
    again, it does not. On PostgreSQL this is the weakest lock for which those two
    wait; other shared locks and changes of the personality do not wait for it.
    """
    query = sa.select(p.id).where(
        p.tenant == tenant,
        p.id == personality.id,
        p.created_at == personality.created_at,
    )
    locking = query.with_for_update(read=True, key_share=True)
    return tx.connection.execute(locking).first() is not None


def lock(tx: Transaction, tenant: str, personality_id: str) -> bool:
    """
    Wait for the transactions that store memories, and have later ones wait for this.

    Returns whether the personality exists.
    """
    query = sa.select(p.id).where(p.tenant == tenant, p.id == personality_id)
    return tx.connection.execute(query.with_for_update()).first() is not None


def listed(view: View, tenant: str) -> Sequence[Personality]:
    """Return a tenant's personalities by name."""
    query = sa.select(*_FIELDS).where(p.tenant == tenant).order_by(p.name, p.id)
    return [Personality(*row) for row in view.connection.execute(query.limit(MOST))]


def count(view: View, tenant: str) -> int:
    """Return how many personalities a tenant has."""
    query = sa.select(sa.func.count()).where(p.tenant == tenant)
    return int(view.connection.execute(query).scalar_one())


def limited(view: View) -> list[tuple[str, Personality]]:
    """Return the personalities with a memory limit, of all tenants."""
    query = sa.select(p.tenant, *_FIELDS).where(p.memory_limit.is_not(None))
    return [(row[0], Personality(*row[1:])) for row in view.connection.execute(query)]


def create(tx: Transaction, tenant: str, new: NewPersonality) -> bool:
    """Store a personality unless its id is taken; return whether it was stored."""
    now = tx.now()
    row = {"tenant": tenant, "created_at": now, "updated_at": now}
    return rows.add(tx.connection, personalities, {**row, **_columns(new)})


def change(
    tx: Transaction, tenant: str, personality_id: str, change: PersonalityChange
) -> Personality:
    """Change the given fields of a personality and return it."""
    find(tx, tenant, personality_id)
    values = _columns(change, change.model_fields_set)
    mine = p.tenant == tenant, p.id == personality_id
    update = personalities.update().where(*mine)
    tx.connection.execute(update.values(**values, updated_at=tx.now()))
    return find(tx, tenant, personality_id)


def delete(tx: Transaction, tenant: str, personality_id: str) -> None:
    """Delete a personality and its memories of all users."""
    find(tx, tenant, personality_id)
    mine = p.tenant == tenant, p.id == personality_id
    # First, because this waits for the transactions that have called `lock_shared`:
    # the next statements delete what they stored.
    if not tx.connection.execute(personalities.delete().where(*mine)).rowcount:
        raise PersonalityNotFound(personality_id)
    for table in (memories, forgotten):
        theirs = table.c.tenant == tenant, table.c.personality == personality_id
        tx.connection.execute(table.delete().where(*theirs))


def _columns(
    body: NewPersonality | PersonalityChange, only: set[str] | None = None
) -> Mapping[str, Any]:
    """Return the columns for a body's fields, or for `only` some of them."""
    fields = type(body).model_fields if only is None else only
    values = {name: getattr(body, name) for name in fields if name != "llm_config"}
    if "llm_config" in fields:
        values["model"] = body.llm_config.model
        values["temperature"] = body.llm_config.temperature
    return values
