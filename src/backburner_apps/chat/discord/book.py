"""
What is stored about replies in Discord, and who may change the shown message next.

Two jobs edit the same message: one shows the draft while the model writes, the other
one the finished reply. The finished reply must be what stays. It never waits for the
draft: if both edits may have been under way at once, it is sent a second time.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from backburner import Owner, Transaction, View
from backburner_apps.chat import rows
from backburner_apps.chat.discord.interaction import Interaction
from backburner_apps.chat.discord.tables import interactions, turns
from backburner_apps.chat.shapes import Turn

MAX_TURNS: Final = 20
"""How many messages of a channel are kept, those of users and replies together."""
MAX_CONTENT: Final = 6_000
"""How many characters of a message are kept; a user's has no more."""
KEPT: Final = 24 * 3_600_000
"""How long an interaction is kept, in milliseconds; its token holds 15 minutes."""

i, t = interactions.c, turns.c


class Late(NamedTuple):
    """A finished reply that the draft may have replaced."""

    webhook: str
    final: str


class Opened(NamedTuple):
    """A reply that is about to be sent."""

    webhook: str
    sent: int
    """How many of its messages were sent by an earlier run."""
    is_contested: bool
    """Whether an edit of the draft may be under way."""


def add(tx: Transaction, owner: Owner, asked: Interaction, message: str) -> bool:
    """Store an interaction; say whether it is new."""
    return rows.add(
        tx.connection,
        interactions,
        {
            "id": asked.id,
            "tenant": owner.tenant,
            "user": owner.user,
            "channel": asked.channel_id,
            "webhook": f"{asked.application_id}/{asked.token}",
            "message": message,
            "created_at": tx.now(),
            "generation": 0,
            "shown": 0,
            "editing": False,
            "sent": 0,
        },
    )


def history(view: View, tenant: str, channel: str) -> list[Turn]:
    """Return the last messages of a channel, the oldest first."""
    query = (
        sa.select(t.role, t.content)
        .where(t.tenant == tenant, t.channel == channel)
        .order_by(t.at.desc(), t.interaction.desc(), t.position.desc())
        .limit(MAX_TURNS)
    )
    found = view.connection.execute(query).all()
    return [Turn(role=role, content=content) for role, content in reversed(found)]


def begin_edit(tx: Transaction, interaction_id: str, shown: int) -> str | None:
    """
    Return the webhook to show a draft with, of which `shown` characters are there.

    `None` if there is nothing new to show, or if the reply is finished.
    """
    if not shown:
        return None
    update = (
        interactions.update()
        .where(i.id == interaction_id, i.final.is_(None), i.shown != shown)
        .values(editing=True, shown=shown)
        .returning(i.webhook)
    )
    webhook: str | None = tx.connection.execute(update).scalar_one_or_none()
    return webhook


def end_edit(tx: Transaction, interaction_id: str) -> Late | None:
    """
    Say that no edit of the draft is under way any more.

    Return the reply to send again if it was sent meanwhile; then the edit counts as
    under way until `settle_edit`.
    """
    row = _locked(tx, interaction_id)
    if row is None or not row.editing:
        return None
    if row.final is not None and row.sent:
        return Late(row.webhook, row.final)
    settle_edit(tx, interaction_id)
    return None


def settle_edit(tx: Transaction, interaction_id: str) -> None:
    """Say that the draft cannot replace the reply any more."""
    change = interactions.update().where(i.id == interaction_id)
    tx.connection.execute(change.values(editing=False))


def begin_reply(
    tx: Transaction, interaction_id: str, generation: int, final: str
) -> Opened | None:
    """
    Store what the reply is; from now on no edit of a draft begins.

    Return `None` if there is nothing to send: the interaction was deleted, or the job
    was retried and that reply came first.
    """
    row = _locked(tx, interaction_id)
    if row is None or row.generation > generation:
        return None
    sent = row.sent if row.generation == generation else 0
    change = interactions.update().where(i.id == interaction_id)
    tx.connection.execute(change.values(generation=generation, final=final, sent=sent))
    return Opened(row.webhook, sent, row.editing)


def mark_sent(
    tx: Transaction, interaction_id: str, sent: int, *, was_contested: bool = False
) -> None:
    """
    Store that so many messages of the reply were sent.

    Nothing is stored if an edit of the draft ended since `begin_reply`: it may have
    replaced the reply, which is to be sent again.
    """
    row = _locked(tx, interaction_id)
    if row is None or (was_contested and not row.editing):
        return
    change = interactions.update().where(i.id == interaction_id)
    tx.connection.execute(change.values(sent=sent))


def add_turns(tx: Transaction, interaction_id: str, reply: str, at: int) -> None:
    """Keep a message and its reply, once, and the last ones of the channel only."""
    query = sa.select(i.tenant, i.user, i.channel, i.message)
    asked = tx.connection.execute(query.where(i.id == interaction_id)).one_or_none()
    if asked is None:
        return
    said = (("user", asked.message), ("assistant", reply))
    for position, (role, content) in enumerate(said):
        row = {
            "tenant": asked.tenant,
            "user": asked.user,
            "channel": asked.channel,
            "interaction": interaction_id,
            "position": position,
            "at": at,
            "role": role,
            "content": content[:MAX_CONTENT],
        }
        rows.add(tx.connection, turns, row)
    here = t.tenant == asked.tenant, t.channel == asked.channel
    _keep_newest(tx, here)


def forget(tx: Transaction, owner: Owner) -> None:
    """Delete the messages of a user, and the replies to them, in every channel."""
    mine = t.tenant == owner.tenant, t.user == owner.user
    tx.connection.execute(turns.delete().where(*mine))


def clean(tx: Transaction, most: int) -> int:
    """Delete interactions that are over, at most so many; return how many."""
    old = sa.select(i.id).where(i.created_at < tx.now() - KEPT).limit(most)
    done = tx.connection.execute(interactions.delete().where(i.id.in_(old)))
    return int(done.rowcount)


def _keep_newest(tx: Transaction, here: Sequence[Any]) -> None:
    order = (t.at.desc(), t.interaction.desc(), t.position.desc())
    old = sa.select(t.interaction, t.position).where(*here).order_by(*order)
    over = tx.connection.execute(old.offset(MAX_TURNS)).all()
    for interaction_id, position in over:
        one = t.interaction == interaction_id, t.position == position
        tx.connection.execute(turns.delete().where(*here, *one))


def _locked(tx: Transaction, interaction_id: str) -> Any:
    """Return an interaction, which nobody else changes until this commits."""
    query = sa.select(interactions).where(i.id == interaction_id).with_for_update()
    return tx.connection.execute(query).one_or_none()
