"""
Stores replies in Discord and coordinates the two jobs that edit the same message.

One job shows the draft while the model writes, the other one the finished reply, which
must remain. The finished reply never waits for the draft: if both edits may have
overlapped, it is sent a second time.
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
"""Number of messages kept per channel, counting users' messages and replies."""
MAX_CONTENT: Final = 6_000
"""Maximum stored length of a message, in characters; users' messages are shorter."""
KEPT: Final = 24 * 3_600_000
"""Retention of interactions, in milliseconds; their tokens expire in 15 minutes."""

i, t = interactions.c, turns.c


class Late(NamedTuple):
    """A finished reply that the draft may have replaced."""

    webhook: str
    final: str


class Opened(NamedTuple):
    """A reply that is about to be sent."""

    webhook: str
    sent: int
    """The number of its messages that earlier runs have sent."""
    is_contested: bool
    """Whether an edit with the draft may be in progress."""


def add(tx: Transaction, owner: Owner, asked: Interaction, message: str) -> bool:
    """Store an interaction; return whether it is new."""
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
    """Return the last messages of a channel, oldest first."""
    query = (
        sa.select(t.role, t.content)
        .where(t.tenant == tenant, t.channel == channel)
        .order_by(t.at.desc(), t.interaction.desc(), t.position.desc())
        .limit(MAX_TURNS)
    )
    newest = view.connection.execute(query).all()
    return [Turn(role=role, content=content) for role, content in reversed(newest)]


def begin_edit(tx: Transaction, interaction_id: str, shown: int) -> str | None:
    """
    Record that a draft of `shown` characters is being shown; return the webhook.

    Returns `None` if there is nothing new to show, or if the reply is finished.
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
    Record that the edit with the draft has ended.

    If the finished reply was sent in the meantime, returns it to be sent again; the
    edit then counts as in progress until `settle_edit`.
    """
    row = _locked(tx, interaction_id)
    if row is None or not row.editing:
        return None
    if row.final is not None and row.sent:
        return Late(row.webhook, row.final)
    settle_edit(tx, interaction_id)
    return None


def settle_edit(tx: Transaction, interaction_id: str) -> None:
    """Record that the draft can no longer replace the reply."""
    change = interactions.update().where(i.id == interaction_id)
    tx.connection.execute(change.values(editing=False))


def begin_reply(
    tx: Transaction, interaction_id: str, generation: int, final: str
) -> Opened | None:
    """
    Store the finished reply, after which no edit with a draft begins.

    Returns `None` if there is nothing to send: the interaction was deleted, or the job
    was retried and the reply of the later run came first.
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
    Store how many messages of the reply were sent.

    Stores nothing if an edit with the draft has ended since `begin_reply`: it may have
    replaced the reply, which must be sent again.
    """
    row = _locked(tx, interaction_id)
    if row is None or (was_contested and not row.editing):
        return
    change = interactions.update().where(i.id == interaction_id)
    tx.connection.execute(change.values(sent=sent))


def add_turns(tx: Transaction, interaction_id: str, reply: str, at: int) -> None:
    """
    Store a message and its reply once, and delete the channel's oldest ones.

    Stores nothing if the user has given `/forget` since the message.
    """
    # Locked: `forget` waits and deletes what is stored here, or has marked it before.
    asked = _locked(tx, interaction_id)
    if asked is None or asked.forgotten:
        return
    messages = (("user", asked.message), ("assistant", reply))
    for position, (role, content) in enumerate(messages):
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
    in_channel = t.tenant == asked.tenant, t.channel == asked.channel
    _keep_newest(tx, in_channel)


def forget(tx: Transaction, owner: Owner) -> None:
    """
    Delete the messages of a user and the replies to them in all channels.

    Replies that are being written do not become part of the history.
    """
    theirs = interactions.update().where(i.tenant == owner.tenant, i.user == owner.user)
    tx.connection.execute(theirs.values(forgotten=True))
    mine = t.tenant == owner.tenant, t.user == owner.user
    tx.connection.execute(turns.delete().where(*mine))


def clean(tx: Transaction, most: int) -> int:
    """Delete up to `most` expired interactions; return how many."""
    old = sa.select(i.id).where(i.created_at < tx.now() - KEPT).limit(most)
    done = tx.connection.execute(interactions.delete().where(i.id.in_(old)))
    return int(done.rowcount)


def _keep_newest(tx: Transaction, in_channel: Sequence[Any]) -> None:
    order = (t.at.desc(), t.interaction.desc(), t.position.desc())
    old = sa.select(t.interaction, t.position).where(*in_channel).order_by(*order)
    over = tx.connection.execute(old.offset(MAX_TURNS)).all()
    for interaction_id, position in over:
        one = t.interaction == interaction_id, t.position == position
        tx.connection.execute(turns.delete().where(*in_channel, *one))


def _locked(tx: Transaction, interaction_id: str) -> Any:
    """Return an interaction and lock its row until this transaction ends."""
    query = sa.select(interactions).where(i.id == interaction_id).with_for_update()
    return tx.connection.execute(query).one_or_none()
