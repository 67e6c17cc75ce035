"""`features` in one process or in several, over real databases."""

import asyncio
import io
import shutil
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2
import pytest
import structlog

from backburner import Backburner, Owner, wiring
from backburner.clock import StoreClock
from backburner.engine.access.keys import Actor, NewKey
from backburner.engine.observability import telemetry
from backburner.engine.submit.submission import LOCAL
from backburner.http import server as http
from backburner.http.auth import as_developer, by_key
from backburner.settings import Settings
from backburner.testing.broker.acts import pause
from backburner_apps.features import app as features_app
from backburner_apps.features.settings import FeaturesSettings
from backburner_apps.features.tables import results
from tests.http.conftest import _serving

CV = "Ada Lovelace\nFive years of Python and PostgreSQL at Acme.\nLed a team of three."
POSTING = "Backend engineer. We need Python, Kubernetes and German."
FINAL = {"COMPLETED", "FAILED"}
OURS = frozenset(FeaturesSettings.model_fields)


def body(posting=POSTING, **more):
    """Return a request as a client sends it."""
    return {"user_cv": CV, "job_posting": posting, **more}


@dataclass
class Features:
    """A running process with `features`, and a client of it."""

    client: Any
    url: str
    backburner: Backburner
    log: io.StringIO

    async def submit(self, feature="gap-analysis", headers=None, **more):
        """Submit a request and return its receipt."""
        answer = await self.client.post(
            f"/api/{feature}/submit", json=body(**more), headers=headers
        )
        assert 202 == answer.status_code, answer.text
        return answer.json()

    async def status(self, job_id, feature="gap-analysis", headers=None):
        """Return the answer to a poll."""
        path = f"/api/{feature}/status/{job_id}"
        return await self.client.get(path, headers=headers)

    async def ended(self, job_id, feature="gap-analysis"):
        """Return the job as its user sees it when it has ended."""
        await self.backburner.engine.wait(f"job_{job_id}", LOCAL, timeout=60)
        shown = (await self.status(job_id, feature)).json()
        assert shown["status"] in FINAL, shown
        return shown

    async def job(self, job_id, owner=LOCAL):
        """Return the engine's job."""
        return await self.backburner.find(f"job_{job_id}", owner)

    async def rows(self):
        """Return the rows of results."""

        def look(view):
            return view.connection.execute(results.select()).mappings().all()

        return await self.backburner.read(look)

    async def blobs(self, owner=LOCAL):
        """Return what the application keeps for a user."""
        return await self.backburner.blobs("features", owner).list()

    async def upload(self, content, feature="gap-analysis", **more):
        """Send a file; return the key to name it by."""
        asked = {"size": len(content), **more}
        offered = await self.client.post(f"/api/{feature}/uploads", json=asked)
        assert 201 == offered.status_code, offered.text
        told = offered.json()
        sent = await self.client.put(
            told["upload_url"], content=content, headers=told["headers"]
        )
        assert 200 == sent.status_code, sent.text
        return told["user_cv_key"]

    async def key(self, user, *scopes):
        """Return the headers of a new key of a user."""
        wanted = frozenset(scopes or ("jobs:read", "jobs:write"))
        made = NewKey("a key", wanted, user=user)
        _, text = await self.backburner.keys.create(made, Actor("tests", "default"))
        return {"Authorization": f"Bearer {text}"}

    def metric(self, name, **labels):
        return telemetry.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request, tmp_path, template):
    """One database of each kind."""
    if request.param == "postgres":
        return request.getfixturevalue("migrated_url")
    shutil.copy(template, tmp_path)
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def start(store_url, tmp_path):
    """Start processes over one database."""
    async with AsyncExitStack() as stack:

        def begin(**options: Any):
            options.setdefault("blobs", f"file://{tmp_path}/blobs")
            return stack.enter_async_context(serving(store_url, **options))

        yield begin


@asynccontextmanager
async def serving(store, *, works=True, keyed=False, provider=None, **settings):
    """Run a server, and a worker in it, with the application."""
    ours = {name: settings.pop(name) for name in [*settings] if name in OURS}
    chosen = Settings(
        store=store,
        poll_seconds=0.2,
        grace_seconds=0,
        **{"key_pepper": "p" * 32, "link_secret": "l" * 32, "ai": ("mock",)} | settings,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    log = io.StringIO()
    telemetry.configure(level="info", pretty=False, stream=log)
    async with AsyncExitStack() as stack:
        backburner = Backburner(
            chosen,
            apps=[features_app],
            app_settings=[FeaturesSettings(**ours)],
            ai=provider,
        )
        await stack.enter_async_context(backburner)
        if works:
            await backburner.start_worker()
        app = http.build(
            backburner.engine,
            chosen,
            keys=backburner.keys,
            authenticate=by_key(backburner.keys) if keyed else as_developer,
            app_routes=await stack.enter_async_context(features_app.serves(backburner)),
        )
        await stack.enter_async_context(_serving(app, chosen, listener))
        client = httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False)
        await stack.enter_async_context(client)
        yield Features(client, url, backburner, log)
    structlog.reset_defaults()


@pytest.fixture
def later(monkeypatch):
    """Move the clock of processes that are started after this, by a span."""

    class Moved(StoreClock):
        ahead = 0

        def now(self):
            return super().now() + Moved.ahead

        async def follow(self, read):
            return await super().follow(read) + Moved.ahead

    monkeypatch.setattr(wiring, "StoreClock", Moved)

    def move(span: timedelta):
        Moved.ahead += span // timedelta(milliseconds=1)

    return move


@pytest.fixture
async def until():
    """Wait until something is so; what it asks may be awaited."""

    async def wait(is_so, seconds=60.0):
        async with asyncio.timeout(seconds):
            while not (found := await is_so()):
                await pause()
            return found

    return wait


ANN, BOB = Owner("default", "ann"), Owner("default", "bob")
