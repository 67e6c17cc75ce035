"""`chat` with its Discord form in this process, and a fake Discord beside it."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from backburner import Owner
from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner.ports.ai import Reply, Tokens
from backburner_apps.chat import personalities
from backburner_apps.chat.discord import replying, routes
from backburner_apps.chat.shapes import NewPersonality
from tests.apps.chat.conftest import Chat, chatting
from tests.apps.chat.discord.fake import PATIENCE, FakeDiscord, fake_discord
from tests.apps.chat.discord.payloads import APPLICATION, PUBLIC_KEY, signed

TENANT = "guests"
FOX = {"id": "fox", "name": "Red Fox", "system_prompt": "You are a fox."}
DEFERRED = {"type": 5}


class Author(Mock):
    """A model that writes what it is told, when it is told; else as the mock does."""

    def __init__(self):
        super().__init__(SystemClock())
        self.pens = {}
        self.chats = []
        self.asked = asyncio.Event()

    def pen(self, message):
        """Return a queue for the pieces of the answer to a message; `None` ends it."""
        return self.pens.setdefault(message, asyncio.Queue())

    async def chat(self, chat, hear=None):
        self.chats.append(chat)
        self.asked.set()
        pen = self.pens.get(chat.messages[-1].text)
        if pen is None:
            return await super().chat(chat, hear)
        text = ""
        while (piece := await pen.get()) is not None:
            text += piece
            await hear(piece)
        return Reply(text, chat.model, Tokens(1, 1))


@dataclass
class Bot:
    """The running application, as Discord talks to it."""

    chat: Chat
    discord: FakeDiscord
    author: Author

    @property
    def backburner(self):
        return self.chat.backburner

    async def send(self, payload: Any, *, at: int | None = None, **spoilt: Any):
        """Call the endpoint; `spoilt` headers take the place of the good ones."""
        now = self.backburner.engine.now() // 1000 if at is None else at
        body, headers = signed(payload, now)
        more = {name.replace("_", "-"): value for name, value in spoilt.items()}
        return await self.chat.client.post(
            "/discord/interactions", content=body, headers=headers | more
        )

    async def give(self, command: Any) -> Any:
        """Give a command whose reply is deferred; return its token."""
        self.discord.defer(command["token"])
        answer = await self.send(command)
        assert (200, DEFERRED) == (answer.status_code, answer.json()), answer.text
        return command["token"]

    async def jobs(self, capability: str) -> list[Any]:
        """Return the jobs of a capability, whoever owns them."""
        found = await self.backburner.read(
            lambda view: view.connection.exec_driver_sql(
                "SELECT id FROM jobs ORDER BY seq"
            ).all()
        )
        jobs = await self.backburner.engine.store.find([row.id for row in found])
        return [job for job in jobs if job.capability == capability]

    async def quiet(self) -> None:
        """Wait until every job has ended but for the scheduled ones."""
        async with asyncio.timeout(PATIENCE):
            while found := await self.backburner.read(_unfinished):
                owner = Owner(found.tenant, found.user)
                await self.backburner.engine.wait(found.id, owner, timeout=60)


def _unfinished(view):
    return view.connection.exec_driver_sql(
        "SELECT id, tenant, \"user\" FROM jobs WHERE queue <> 'chat-upkeep' "
        "AND state NOT IN ('succeeded', 'failed', 'cancelled') ORDER BY seq"
    ).first()


@pytest.fixture
async def discord():
    """Discord, for replies."""
    async with fake_discord() as fake:
        yield fake


@pytest.fixture
def hurried(monkeypatch):
    """Have drafts shown much more often, for tests that are about something else."""
    for module in (replying, routes):
        monkeypatch.setattr(module, "EVERY", timedelta(milliseconds=50))


@pytest.fixture
async def start(store_url, discord):
    """Start processes over one database."""
    async with AsyncExitStack() as stack:

        def begin(**options: Any):
            return stack.enter_async_context(bot(store_url, discord, **options))

        yield begin


def chat_settings(discord):
    """Return settings by which Discord is the fake one and nobody waits for a lane."""
    return {
        "discord_public_key": PUBLIC_KEY,
        "discord_application_id": APPLICATION,
        "discord_api_base_url": discord.url,
        "discord_tenant": TENANT,
        "provider_spacing_ms": 0,
        "user_requests": 0,
    }


async def create(backburner, **more):
    """Have the tenant know a personality."""
    new = NewPersonality(**FOX | more)
    await backburner.transact(lambda tx: personalities.create(tx, TENANT, new))


@asynccontextmanager
async def bot(store, discord, *, works=True, **settings):
    author = Author()
    usual = chat_settings(discord)
    async with chatting(
        store,
        works=False,
        provider=author,
        webhook_allow=["127.0.0.1"],
        **{**usual, **settings},
    ) as chat:
        await create(chat.backburner)
        if works:
            await chat.backburner.start_worker()
        yield Bot(chat, discord, author)


def told(answer):
    """Return what only the user is told."""
    body = answer.json()
    assert (200, 4, 64) == (answer.status_code, body["type"], body["data"]["flags"])
    return body["data"]["content"]
