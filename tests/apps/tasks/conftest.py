"""Both services in one process, over a real file or a real database."""

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

from backburner import Backburner
from backburner.domain.webhook import sign
from backburner.engine import telemetry
from backburner.engine.keys import Actor, Wanted
from backburner.http import server as http
from backburner.http.auth import as_developer, by_key
from backburner.settings import Settings
from backburner_apps.ai import app as ai_app
from backburner_apps.tasks import app as tasks_app
from tests import homes
from tests.http.conftest import _serving

SECRET = "a secret that the two services share"  # noqa: S105 - of the tests
TOPIC = "ai-callback"
PARSE = "/api/v1/capabilities/parse-task"


@dataclass
class Services:
    """A running process with both services, and a client of it."""

    url: str
    house: Backburner
    client: httpx2.AsyncClient
    log: io.StringIO

    async def wish(self, sentence: Any = "buy milk tomorrow", **more: Any):
        """Ask for a task."""
        body = {"naturalLanguage": sentence}
        return await self.client.post("/api/v1/tasks", json=body, **more)

    async def ended(self, accepted: Any, **more: Any) -> dict[str, Any]:
        """Return what became of a request once something did."""
        place = f"/api/v1/requests/{accepted.json()['tasksServiceRequestId']}"
        async with asyncio.timeout(60):
            while True:
                told = (await self.client.get(place, **more)).json()
                if told["status"] in {"created", "failed"}:
                    return told
                await asyncio.to_thread(lambda: None)

    async def call_back(self, body: Any, *, request_id: str = "r", **changes: Any):
        """Post a callback as the worker does; `changes` spoil it."""
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        secret = changes.get("secret") or self.house.courier.secret(TOPIC)
        at = changes.get("at", self.house.engine.now() // 1000)
        headers = {
            "Content-Type": "application/json",
            "webhook-id": "msg",
            "webhook-timestamp": str(at),
            "webhook-signature": sign([secret], "msg", at, content),
            "X-Request-ID": request_id,
        }
        for name in changes.get("without", ()):
            del headers[name]
        sent = changes.get("sent", content)
        return await self.client.post("/api/v1/webhooks", content=sent, headers=headers)

    async def balance(self) -> tuple[int, int]:
        """Return what is held and what is settled of the one budget."""
        [state] = await self.house.budgets.accounts()
        return state.balance.held, state.balance.settled

    async def key(self, user: str, *scopes: str) -> dict[str, str]:
        """Return the headers of a new key of a user."""
        wanted = Wanted("a key", frozenset(scopes or ("jobs:read", "jobs:write")))
        wanted = Wanted(wanted.name, wanted.scopes, user=user)
        _, text = await self.house.keys.create(wanted, Actor("tests", "default"))
        return {"Authorization": f"Bearer {text}"}


@pytest.fixture
def store_url(request, tmp_path, template):
    """A store of the kind that this run is about first, or that a test asks for."""
    if getattr(request, "param", homes.STORES[0]) == "postgres":
        return request.getfixturevalue("migrated_url")
    shutil.copy(template, tmp_path)
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def start(store_url):
    """Start processes over one database."""
    async with AsyncExitStack() as stack:

        def begin(**options: Any):
            return stack.enter_async_context(services(store_url, **options))

        yield begin


@asynccontextmanager
async def services(store, *, works=True, keyed=False, provider=None, **settings):
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    chosen = Settings(
        store=store,
        poll_seconds=0.2,
        grace_seconds=0,
        key_pepper="a pepper that only the tests know",
        webhook_secret=SECRET,
        **{"tasks_service_base_url": url, "ai_service_base_url": url, **settings},
    )
    log = io.StringIO()
    telemetry.configure(level="info", pretty=False, stream=log)
    async with AsyncExitStack() as stack:
        house = Backburner(chosen, apps=[ai_app, tasks_app], ai=provider)
        await stack.enter_async_context(house)
        if works:
            await house.start_worker()
        routes = [
            route
            for app in (ai_app, tasks_app)
            for route in await stack.enter_async_context(app.serves(house))
        ]
        app = http.build(
            house.engine,
            chosen,
            keys=house.keys,
            authenticate=by_key(house.keys) if keyed else as_developer,
            rooms=routes,
        )
        await stack.enter_async_context(_serving(app, listener))
        client = httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False)
        await stack.enter_async_context(client)
        yield Services(url, house, client, log)
    structlog.reset_defaults()


@pytest.fixture
async def answering():
    """Start servers that always answer the same; `None`: nobody is there."""
    async with AsyncExitStack() as stack:

        async def begin(answer):
            if answer is None:
                with socket.create_server(("127.0.0.1", 0)) as free:
                    return f"http://127.0.0.1:{free.getsockname()[1]}"
            status, body = answer

            async def reply(reader, writer):
                await reader.readuntil(b"\r\n\r\n")
                head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n"
                writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(reply, "127.0.0.1", 0)
            await stack.enter_async_context(server)
            port = server.sockets[0].getsockname()[1]
            return f"http://127.0.0.1:{port}"

        yield begin


@pytest.fixture
async def serve_ai(tmp_path):
    """Start an AI service of its own, over a store of its own, with a key to it."""
    async with AsyncExitStack() as stack:

        async def begin():
            other = await stack.enter_async_context(
                services(
                    f"sqlite:///{tmp_path}/ai.db",
                    keyed=True,
                    webhook_http=True,
                    webhook_allow=("127.0.0.1",),
                )
            )
            shown = await other.key("tasks")
            return other.url, shown["Authorization"].removeprefix("Bearer ")

        yield begin
