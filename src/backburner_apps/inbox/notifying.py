"""
The queue `notifications`: one job sends one message to a chat.

A text that is too long for one message is sent by a chain of jobs: each sends the first
part of its text and, in the transaction of its success, submits a job for the rest. A
retry therefore does not repeat parts that were already sent.
"""

from datetime import timedelta
from typing import Final

from pydantic import Field

from backburner import Context, Owner, RetryPolicy, Transaction, capability
from backburner_apps.inbox import book
from backburner_apps.inbox.markup import split
from backburner_apps.inbox.settings import InboxSettings, ParseMode
from backburner_apps.inbox.shapes import Id, Name, Wire
from backburner_apps.inbox.telegram import Bot

QUEUE: Final = "notifications"
LONGEST_TEXT: Final = 200_000
RETRY: Final = RetryPolicy(max_attempts=10, cap=timedelta(minutes=1))
"""About four minutes in total, so that a short outage of the Bot API loses nothing."""
PATIENCE: Final = timedelta(hours=1)
"""Total time that a message may wait for rate limits without using up an attempt."""


class Notification(Wire):
    """A job of the queue `notifications`; its text is escaped for the parse mode."""

    chat_id: Id
    text: str = Field(min_length=1, max_length=LONGEST_TEXT)
    parse_mode: ParseMode
    correlation_id: Name


class Sent(Wire):
    """The result of a notification."""

    message_id: int | None = None
    """Telegram's id of the message; `None` without a bot."""
    is_last: bool = True
    """Whether it was the last part of its text."""


@capability(
    "inbox.notify",
    queue=QUEUE,
    retry=RETRY,
    patience=PATIENCE,
    timeout=timedelta(minutes=1),
)
async def notify(ctx: Context, value: Notification) -> Sent:
    """Send a message to a chat; without a bot, store it for the outbox page."""
    settings = ctx.settings_of(InboxSettings)
    first, rest = split(value.text, value.parse_mode)
    number = None
    if settings.token:
        bot = Bot(ctx.http, settings)
        number = await bot.send(value.chat_id, first, value.parse_mode)
    owner = ctx.job.owner

    def settle(tx: Transaction) -> None:
        if not settings.token:
            shown = value.model_copy(update={"text": first})
            book.add_reply(tx, owner, shown.model_dump())
        if rest:
            queue(tx, owner, value.model_copy(update={"text": rest}))

    ctx.at_settlement(settle)
    return Sent(message_id=number, is_last=not rest)


def queue(tx: Transaction, owner: Owner, value: Notification) -> None:
    """Submit the job that sends a message, when this transaction commits."""
    tx.submit(notify, value, owner=owner, request_id=value.correlation_id)
