"""The tables of `chat` for Discord."""

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
    sa.Column("forgotten", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index("ix_chat_discord_interactions_user", "tenant", "user"),
)
"""
Replies in Discord and their progress.

`webhook` is the path in Discord's API with which the reply is edited. It is a secret,
so it is here and not in the input of a job, which others may see.
`shown` is the length of the last draft that was shown, and `editing` whether such an
edit may be in progress. `final` is the first message of the finished reply and `sent`
the number of its messages that Discord has accepted, both for the job's `generation`.
`forgotten` is whether the user has given `/forget` since: then neither the message nor
its reply is stored in `turns`.
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
"""The last messages of channels; `position` is 0 for the user, 1 for the reply."""


def erase(tx: Transaction, owner: Owner, limit: int) -> int:
    """Delete up to `limit` rows of a user; return how many were deleted."""
    erased = erase_rows(tx, interactions, owner, limit)
    return erased or erase_rows(tx, turns, owner, limit)
