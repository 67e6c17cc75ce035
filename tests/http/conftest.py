"""A real server on a free port, over a real file, with a worker in it."""

import asyncio
import io
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx2
import pytest
import pytest_asyncio
import structlog
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from backburner import Backburner, Context, RetryPolicy, TransientError, capability
from backburner.demo import app as demo
from backburner.domain.auth.access import ACT, possible
from backburner.engine.access.keys import Actor, NewKey
from backburner.engine.observability import telemetry
from backburner.http import server as http
from backburner.http.auth import by_key
from backburner.http.protocol import config
from backburner.settings import Settings
from backburner.testing.broker.acts import pause

PEPPER = "a pepper that only the tests know"

NO_WEBHOOKS: Mapping[str, Any] = {}
NO_LIMITS: Mapping[str, Any] = {}
AT_ONCE = RetryPolicy(max_attempts=10, base=timedelta(), jitter=timedelta())


class Wait(BaseModel):
    """How often to fail before waiting."""

    failures: int = 0


@dataclass
class Server:
    """A running server and a client of it."""

    url: str
    app: FastAPI
    backburner: Backburner
    client: httpx2.AsyncClient
    log: io.StringIO
    release: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets `test.wait` finish."""

    async def submit(self, name: str = "demo.echo", value: Any = None, **more: Any):
        """Submit a job over HTTP and return its receipt."""
        asked = {"capability": name, "input": {} if value is None else value, **more}
        response = await self.client.post("/v1/jobs", json=asked)
        assert 202 == response.status_code, response.text
        return response.json()

    async def ended(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return the job when it has ended."""
        response = await self.client.get(
            job["links"]["self"], headers={"Prefer": "wait=30"}
        )
        return response.json()

    async def failed(self) -> dict[str, Any]:
        """Return a job that failed for good."""
        value = {"times": 1, "error": "permanent"}
        return await self.ended(await self.submit("demo.fail", value))

    async def key(self, tenant: str = "default", *scopes: str, **fields: Any) -> str:
        """Return a new key, with all scopes that it can have if none is named."""
        given = frozenset(scopes) or possible(tenant, fields.get("user")) - {ACT}
        wanted = NewKey("a key", given, **fields)
        _, text = await self.backburner.keys.create(wanted, Actor("tests", tenant))
        return text

    def shown(self, key: str, **headers: str) -> dict[str, str]:
        """Return the headers that show a key."""
        return {"Authorization": f"Bearer {key}", **headers}

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(60):
            while not predicate():
                await pause()


class Running(uvicorn.Server):
    """Uvicorn that says when it is up and leaves the signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self):
        yield

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@pytest.fixture
async def serve(store_url):
    """Start servers over one database."""
    async with AsyncExitStack() as stack:

        def start(**options: Any):
            return stack.enter_async_context(a_server(store_url, **options))

        yield start


@pytest.fixture
async def server(serve):
    """A server with a worker, for one test."""
    return await serve()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def standing(tmp_path_factory, template):
    """A server with a worker, for all tests of a file that refuse something."""
    folder = tmp_path_factory.mktemp("standing")
    shutil.copy(template, folder)
    async with a_server(f"sqlite:///{folder}/jobs.db") as server:
        yield server


@asynccontextmanager
async def a_server(  # noqa: PLR0913 - each is a setting or a switch
    store: str,
    *,
    works: bool = True,
    keyed: bool = False,
    body_limit: int = 64 * 1024,
    key_rate: float = 1000.0,
    blobs: str = "",
    capabilities: Sequence[Any] = (),
    webhooks: Mapping[str, Any] = NO_WEBHOOKS,
    limits: Mapping[str, Any] = NO_LIMITS,
    deliveries: RetryPolicy = AT_ONCE,
    **options: Any,
) -> AsyncIterator[Server]:
    settings = Settings(
        store=store,
        body_limit=body_limit,
        key_rate=key_rate,
        blobs=blobs,
        poll_seconds=0.2,
        grace_seconds=0,
        key_pepper=PEPPER,
        **webhooks,
        **limits,
    )
    log = io.StringIO()
    telemetry.configure(level="info", pretty=False, stream=log)
    release = asyncio.Event()

    @capability("test.wait", queue="demo", retry=AT_ONCE)
    async def wait(ctx: Context, value: Wait) -> dict[str, int]:
        if ctx.job.attempt <= value.failures:
            raise TransientError("not yet")
        await release.wait()
        return {"attempt": ctx.job.attempt}

    async with AsyncExitStack() as stack:
        stack.callback(structlog.reset_defaults)
        backburner = Backburner(
            settings,
            apps=[demo],
            capabilities=[wait, *capabilities],
            deliveries=deliveries,
        )
        await stack.enter_async_context(backburner)
        if works:
            await backburner.start_worker()
        if keyed:
            options["authenticate"] = by_key(backburner.keys)
        app = http.build(
            backburner.engine,
            settings,
            keys=backburner.keys,
            version="1.2.3",
            **options,
        )
        listener = socket.create_server(("127.0.0.1", 0))
        stack.callback(listener.close)  # should nobody come to serve on it
        # As uvloop has it; asyncio does not see that such a socket is TCP.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        await stack.enter_async_context(_serving(app, settings, listener))
        client = httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False)
        await stack.enter_async_context(client)
        yield Server(url, app, backburner, client, log, release)
        release.set()


@asynccontextmanager
async def _serving(
    app: FastAPI, settings: Settings, listener: socket.socket
) -> AsyncIterator[None]:
    server = Running(config(app, settings))
    serving = asyncio.create_task(server.serve([listener]))
    await server.ready.wait()
    try:
        yield
    finally:
        http.stop(app)
        server.should_exit = True
        await serving
