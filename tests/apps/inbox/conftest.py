"""The inbox in one process, over real databases, with a Bot API of the tests."""

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa
import telegram

from backburner import Owner
from backburner.domain.jobs.job import JobState
from backburner.ports.store.maintenance import JobFilter
from backburner.testing.broker.acts import pause
from backburner_apps.inbox import app as inbox_app
from backburner_apps.inbox import tables
from backburner_apps.inbox.settings import InboxSettings
from tests.apps.inbox.fake_bot import TOKEN, FakeBot, serving
from tests.apps.process import Process, served, take

SECRET = "a-secret-of-the-tests"  # noqa: S105 - of the tests
HEADER = "X-Telegram-Bot-Api-Secret-Token"
PATH = "/telegram/webhook"
ADA = telegram.User(7, "Ada", is_bot=False, language_code="en", username="ada")
OWNER = Owner("default", "telegram:7")
NUMBERS = count(1)


def written(text=None, sender=ADA, **more):
    """Return an update with a message, built by python-telegram-bot."""
    number = next(NUMBERS)
    chat = telegram.Chat(sender.id, "private", first_name=sender.first_name)
    at = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
    message = telegram.Message(number, at, chat, from_user=sender, text=text, **more)
    return telegram.Update(number, message=message).to_dict()


@dataclass
class Inbox(Process):
    """A running process with the inbox, and who writes to its bot."""

    bot: FakeBot

    async def post(self, update: Any, secret: str | None = SECRET, **more: Any):
        """Post an update as Telegram does."""
        headers = {} if secret is None else {HEADER: secret}
        headers |= more.pop("headers", {})
        return await self.client.post(PATH, json=update, headers=headers, **more)

    async def say(self, text: str, sender: telegram.User = ADA):
        """Have somebody write a text; return when it is taken."""
        answer = await self.post(written(text, sender))
        assert 200 == answer.status_code, answer.text
        return answer

    async def rest(self) -> None:
        """Wait until no job is left."""
        while await self.backburner.engine.store.depths():
            await pause()

    async def rows(self, table: sa.Table, *where: Any) -> list[Any]:
        """Return the rows of a table, as they were made."""
        order = [c for c in table.c if c.name in {"created_at", "task", "position"}]
        wanted = sa.select(table).where(*where).order_by(*order)
        return await self.backburner.read(
            lambda view: view.connection.execute(wanted).all()
        )

    async def tasks(self) -> list[Any]:
        return sorted(await self.rows(tables.tasks), key=lambda row: row.number)

    async def jobs(self, capability: str) -> list[Any]:
        """Return the whole jobs of a capability."""
        where = JobFilter(OWNER, capability=capability)
        listed = await self.backburner.engine.jobs(where, limit=100)
        return await self.backburner.engine.store.find([job.id for job in listed])

    async def job(self) -> Any:
        [found] = await self.jobs("inbox.parse-message")
        return found


@pytest.fixture
async def start(store_url):
    """Start processes over one database."""
    async with AsyncExitStack() as stack:

        def begin(**options: Any):
            return stack.enter_async_context(opened(store_url, **options))

        yield begin


@asynccontextmanager
async def opened(store, **options):
    bot = FakeBot()
    async with serving(bot.answer) as bot.url:
        ours = {
            "telegram_bot_token": TOKEN,
            "telegram_webhook_secret": SECRET,
            "telegram_api_base_url": bot.url,
            **take(options, InboxSettings),
        }
        options = {"kind": partial(Inbox, bot=bot), "level": "debug", **options}
        options["webhook_allow"] = ("127.0.0.1",)
        async with served(store, [inbox_app], [InboxSettings(**ours)], **options) as it:
            yield it


SUCCEEDED, FAILED = JobState.SUCCEEDED, JobState.FAILED
