"""The tables of the Discord form of `chat`."""

import sqlalchemy as sa

from backburner import Owner, Transaction, erase_rows
from backburner_apps.chat.tables import metadata

interactions = sa.Table(
    "chat_discord_interactions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("webhook", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False, index=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("shown", sa.Integer, nullable=False),
    sa.Column("editing", sa.Boolean, nullable=False),
    sa.Column("final", sa.Text),
    sa.Column("sent", sa.Integer, nullable=False),
    sa.Index("ix_chat_discord_interactions_user", "tenant", "user"),
)
"""
A reply in Discord and how far it is.

`webhook` is the path of Discord's API that the reply is changed by, and a secret: it is
here and not in the input of a job, which others may see.
`shown` is how many characters of the draft were shown last, `editing` whether such an
edit may be under way. `final` is the first message of the finished reply, `sent` how
many of its messages Discord has accepted, both of the job's `generation`.
"""

turns = sa.Table(
    "chat_discord_turns",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("channel", sa.Text, primary_key=True),
    sa.Column("interaction", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Index("ix_chat_discord_turns_user", "tenant", "user"),
    sa.Index("ix_chat_discord_turns_at", "tenant", "channel", "at"),
)
"""The last messages of a channel; `position` is 0 for the user's, 1 for the reply."""


def erase(tx: Transaction, owner: Owner, limit: int) -> int:
    """Delete up to `limit` rows of a user; return how many there were."""
    erased = erase_rows(tx, interactions, owner, limit)
    return erased or erase_rows(tx, turns, owner, limit)
