"""A server of this process with applications and a worker, over a test's database."""

import asyncio
import io
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson
import structlog

from backburner import Backburner
from backburner.engine.access.keys import Actor, NewKey
from backburner.engine.observability import telemetry
from backburner.http import server as http
from backburner.http import static
from backburner.http.auth import as_developer, by_key
from backburner.settings import Settings
from backburner.testing.broker.acts import pause
from tests.http.conftest import _serving


@dataclass
class Process:
    """The running server, and a client of it."""

    client: httpx2.AsyncClient
    url: str
    backburner: Backburner
    log: io.StringIO
    server_state: Any
    """What the routes share, such as the count of large bodies."""

    async def rows(self, table):
        """Return the rows of a table."""

        def look(view):
            return view.connection.execute(table.select()).all()

        return await self.backburner.read(look)

    def lines(self, event):
        """Return the log lines of an event."""
        lines = map(orjson.loads, self.log.getvalue().splitlines())
        return [line for line in lines if line["event"] == event]

    async def key(self, user, *scopes, tenant="default"):
        """Return the headers of a new key of a user."""
        wanted = frozenset(scopes or ("jobs:read", "jobs:write"))
        made = NewKey("a key", wanted, user=user)
        _, text = await self.backburner.keys.create(made, Actor("tests", tenant))
        return {"Authorization": f"Bearer {text}"}

    def metric(self, name, **labels):
        return telemetry.registry.get_sample_value(name, labels) or 0.0


def listen():
    """Return a socket on a free port, and its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    # As uvloop has it; asyncio does not see that such a socket is TCP.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def take(settings, kind):
    """Remove those settings that are an application's own, and return them."""
    return {name: settings.pop(name) for name in kind.model_fields if name in settings}


@asynccontextmanager
async def served(  # noqa: PLR0913 - each is a part of it or a switch
    store,
    apps,
    app_settings,
    *,
    kind=Process,
    works=True,
    keyed=False,
    provider=None,
    pages=False,
    level="info",
    listening=None,
    **settings,
):
    """Run the applications, with a worker unless told otherwise; yield a `kind`."""
    usual = {"key_pepper": "a pepper that only the tests know", "ai": ("mock",)}
    chosen = Settings(
        store=store, poll_seconds=0.2, grace_seconds=0, **{**usual, **settings}
    )
    listener, url = listening or listen()
    log = io.StringIO()
    telemetry.configure(level=level, pretty=False, stream=log)
    async with AsyncExitStack() as stack:
        stack.callback(structlog.reset_defaults)
        stack.callback(listener.close)  # should nobody come to serve on it
        backburner = await stack.enter_async_context(
            Backburner(chosen, apps=apps, app_settings=app_settings, ai=provider)
        )
        if works:
            await backburner.start_worker()
        routes = []
        for app in apps:
            routes += await stack.enter_async_context(app.serves(backburner))
            if pages:
                origins = await backburner.upload_origins()
                routes += static.routes(app.name, app.pages, origins)
        server = http.build(
            backburner.engine,
            chosen,
            keys=backburner.keys,
            authenticate=by_key(backburner.keys) if keyed else as_developer,
            app_routes=routes,
        )
        await stack.enter_async_context(_serving(server, chosen, listener))
        client = httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False)
        await stack.enter_async_context(client)
        yield kind(client, url, backburner, log, server.state.server_state)


async def until(is_so, seconds=90.0):
    """Wait until something is so, and return it; what it asks may be awaited."""
    async with asyncio.timeout(seconds):
        while not (found := await is_so()):
            await pause()
        return found
