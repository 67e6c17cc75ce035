"""`chat` in one process or in several, over real databases."""

import asyncio
import io
import shutil
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson
import pytest
import structlog

from backburner import Backburner, Ticket
from backburner.domain.jobs.job import Submitted
from backburner.engine.access.keys import Actor, NewKey
from backburner.engine.observability import telemetry
from backburner.engine.submit.submission import LOCAL
from backburner.http import server as http
from backburner.http.auth import as_developer, by_key
from backburner.settings import Settings
from backburner.testing.broker.acts import pause
from backburner_apps.chat import app as chat_app
from backburner_apps.chat import generation, personalities
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.shapes import GenerateRequest, NewPersonality
from tests.http.conftest import _serving

ADA = NewPersonality(id="ada", name="Ada", system_prompt="You are Ada.")
DATA = "data:audio/ogg;base64,T2dnUw=="
PICTURE = "data:image/png;base64,iVBORw0KGgo="


def body(message="hello", **more):
    """Return a request as a client sends it."""
    usual = {"personalityId": "ada", "channelId": "c", "userId": "1"}
    return {**usual, "userMessage": message, **more}


def asked(message="hello", **more):
    return GenerateRequest.model_validate(body(message, **more))


def ticket(chat, job_id):
    """Return the way to a job's result."""
    return Ticket(Submitted(job_id, "queued"), chat.backburner.engine)


@dataclass
class Chat:
    """A running process with `chat`, and a client of it."""

    client: Any
    url: str
    backburner: Backburner
    log: io.StringIO

    async def generate(self, message="hello", params="", headers=None, **more):
        return await self.client.post(
            f"/ai/generate{params}", json=body(message, **more), headers=headers
        )

    async def make(self, new=ADA, tenant=LOCAL.tenant):
        await self.backburner.transact(lambda tx: personalities.create(tx, tenant, new))

    async def rows(self, table):
        def look(view):
            return view.connection.execute(table.select()).mappings().all()

        return await self.backburner.read(look)

    def lines(self, event):
        """Return the log lines of an event."""
        lines = map(orjson.loads, self.log.getvalue().splitlines())
        return [line for line in lines if line["event"] == event]

    async def key(self, user, *scopes):
        """Return the headers of a new key of a user."""
        wanted = frozenset(scopes or ("jobs:read", "jobs:write"))
        made = NewKey("a key", wanted, user=user)
        _, text = await self.backburner.keys.create(made, Actor("tests", "default"))
        return {"Authorization": f"Bearer {text}"}


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request, tmp_path, template):
    """One database of each kind."""
    if request.param == "postgres":
        return request.getfixturevalue("migrated_url")
    shutil.copy(template, tmp_path)
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def start(store_url):
    """Start processes over one database."""
    async with AsyncExitStack() as stack:

        def begin(**options: Any):
            return stack.enter_async_context(chatting(store_url, **options))

        yield begin


@asynccontextmanager
async def chatting(store, *, works=True, keyed=False, provider=None, **settings):
    names = ChatSettings.model_fields
    ours = {name: settings.pop(name) for name in [*settings] if name in names}
    chosen = Settings(
        store=store,
        poll_seconds=0.2,
        grace_seconds=0,
        key_pepper="a pepper that only the tests know",
        **{"ai": ("mock",), **settings},
    )
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    log = io.StringIO()
    telemetry.configure(level="info", pretty=False, stream=log)
    async with AsyncExitStack() as stack:
        stack.callback(structlog.reset_defaults)
        stack.callback(listener.close)  # should nobody come to serve on it
        backburner = Backburner(
            chosen, apps=[chat_app], app_settings=[ChatSettings(**ours)], ai=provider
        )
        await stack.enter_async_context(backburner)
        if works:
            await backburner.start_worker()
        routes = await stack.enter_async_context(chat_app.serves(backburner))
        app = http.build(
            backburner.engine,
            chosen,
            keys=backburner.keys,
            authenticate=by_key(backburner.keys) if keyed else as_developer,
            app_routes=routes,
        )
        await stack.enter_async_context(_serving(app, chosen, listener))
        client = httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False)
        await stack.enter_async_context(client)
        yield Chat(client, url, backburner, log)


@pytest.fixture
def one_minute(monkeypatch):
    """Have the minute of users' limits begin now, so that it does not end meanwhile."""

    def begin(chat):
        monkeypatch.setattr(generation, "MINUTE", chat.backburner.engine.now() + 59_000)

    return begin


@pytest.fixture
async def until():
    """Wait until something is so; what it asks may be awaited."""

    async def wait(is_so, seconds=60.0):
        async with asyncio.timeout(seconds):
            while not (found := await is_so()):
                await pause()
            return found

    return wait
