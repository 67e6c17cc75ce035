"""
The jobs that edit a reply in Discord.

`chat.discord-draft` shows what the model has written so far, every two seconds. Between
two edits it holds no worker slot. `chat.discord-reply` is the completion of the job
that writes the reply: it runs whether that job succeeded or failed, and shows the
reply or an apology.
"""

from datetime import timedelta
from typing import Final

from pydantic import BaseModel

from backburner import (
    Context,
    JobEnd,
    JobNotFound,
    PermanentError,
    RetryPolicy,
    Snooze,
    Throttled,
    Transaction,
    TransientError,
    capability,
)
from backburner_apps.chat.discord import book
from backburner_apps.chat.discord.api import DiscordApi
from backburner_apps.chat.discord.splitting import preview, split
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.shapes import Reply

QUEUE: Final = "discord"
"""The queue of finished replies, which wait neither for model calls nor for drafts."""
DRAFT_QUEUE: Final = "discord-drafts"
APOLOGY: Final = "❌ Sorry, something went wrong processing your request."
EVERY: Final = timedelta(seconds=2)
"""Minimum time between two edits with a draft."""
TIMEOUT: Final = timedelta(seconds=60)
RETRY: Final = RetryPolicy(max_attempts=8, base=timedelta(seconds=1))
"""About two minutes, more than Discord's token is valid after the deadline."""


class Ended(JobEnd):
    """The end of the job that writes the reply."""

    output: Reply | None = None


class Finished(BaseModel):
    """A reply to show."""

    interaction: str
    job: Ended


class Followed(BaseModel):
    """A job whose text is shown while it is written."""

    interaction: str
    job: str


class Shown(BaseModel):
    """The number of messages of a reply; 0 if it can no longer be shown."""

    messages: int


@capability("chat.discord-reply", queue=QUEUE, timeout=TIMEOUT, retry=RETRY)
async def show_reply(ctx: Context, value: Finished) -> Shown:
    """Show the reply or the apology, and store a reply in the channel's history."""
    ended, interaction = value.job, value.interaction
    written = "" if ended.output is None else ended.output.content
    content = written.replace("\0", "")  # PostgreSQL cannot store it
    parts = split(content) or [APOLOGY]
    api = _api(ctx)

    def begin(tx: Transaction) -> book.Opened | None:
        if content.strip():
            book.add_turns(tx, interaction, content, ctx.job.created_at)
        return book.begin_reply(tx, interaction, ended.generation, parts[0])

    opened = await ctx.transact(begin)
    while opened is not None and not opened.sent:
        await api.edit(opened.webhook, parts[0])
        await ctx.transact(
            book.mark_sent, interaction, 1, was_contested=opened.is_contested
        )
        opened = await ctx.transact(begin)
    if opened is None:
        return Shown(messages=0)
    for sent in range(opened.sent, len(parts)):
        await api.follow_up(opened.webhook, parts[sent])
        await ctx.transact(book.mark_sent, interaction, sent + 1)
    return Shown(messages=len(parts))


def _api(ctx: Context) -> DiscordApi:
    return DiscordApi(ctx.http, ctx.settings_of(ChatSettings).discord_api_base_url)


@capability("chat.discord-draft", queue=DRAFT_QUEUE, timeout=TIMEOUT, retry=RETRY)
async def show_draft(ctx: Context, value: Followed) -> Shown | Snooze:
    """Show what is written so far, and run again in two seconds."""
    api = _api(ctx)
    await _repair(ctx, api, value.interaction)  # after a run that was killed
    try:
        draft = await ctx.draft_of(value.job)
    except JobNotFound:
        return Shown(messages=0)
    if draft.state.is_final:
        return Shown(messages=1)
    text, wait = preview(draft.text), EVERY
    webhook = await ctx.transact(book.begin_edit, value.interaction, len(text))
    if webhook is not None:
        try:
            wait = await _edit(api, webhook, text)
        except PermanentError:  # the message or the token is gone
            await ctx.transact(book.settle_edit, value.interaction)
            return Shown(messages=0)
        await _repair(ctx, api, value.interaction)
    return Snooze(wait, "the model is writing")


async def _edit(api: DiscordApi, webhook: str, text: str) -> timedelta:
    """Show a draft if Discord accepts it now; return how long to wait afterwards."""
    try:
        await api.edit(webhook, text)
    except Throttled as error:
        return max(EVERY, timedelta(seconds=error.retry_after or 0))
    except TransientError:
        return 2 * EVERY  # the next draft replaces this one
    return EVERY


async def _repair(ctx: Context, api: DiscordApi, interaction: str) -> None:
    """Show the finished reply again if a draft may have replaced it."""
    late = await ctx.transact(book.end_edit, interaction)
    if late is not None:
        await api.edit(late.webhook, late.final)
        await ctx.transact(book.settle_edit, interaction)
