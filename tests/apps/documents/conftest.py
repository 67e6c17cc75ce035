"""`documents` in one process, over real databases, with real uploads."""

import asyncio
import hashlib
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
from backburner.engine.access.keys import Actor, NewKey
from backburner.engine.observability import telemetry
from backburner.http import server as http
from backburner.http import static
from backburner.http.auth import as_developer, by_key
from backburner.settings import Settings
from backburner.testing.broker.acts import pause
from backburner_apps.documents import app as documents_app
from backburner_apps.documents import tables
from backburner_apps.documents.settings import DocumentsSettings
from tests.http.conftest import _serving

UPLOADS = "/api/v2/uploads"
ENDED = ("ready", "failed")
TEXT = b"The heron stands in the shallow water and waits for a fish.\n"
SIZE = len(TEXT)
FAST = {
    "extract_per_minute": 0,
    "chunk_per_minute": 0,
    "embed_per_minute": 0,
    "extract_retry_seconds": 0,
    "chunk_retry_seconds": 0,
    "embed_retry_seconds": 0,
}
"""Without rates and delays: only the tests of limits and delays keep them."""
USER = ("jobs:read", "jobs:write", "dead-letters:read", "dead-letters:retry")


def md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@dataclass
class Documents:
    """A running process with `documents`, and a client of it."""

    client: Any
    url: str
    backburner: Backburner
    log: io.StringIO
    headers: Any = None

    def by(self, headers):
        """Return the same process, called with other headers."""
        return Documents(self.client, self.url, self.backburner, self.log, headers)

    async def get(self, path, **params):
        return await self.client.get(path, params=params or None, headers=self.headers)

    async def post(self, path, body=None):
        return await self.client.post(path, json=body, headers=self.headers)

    async def delete(self, path):
        return await self.client.delete(path, headers=self.headers)

    async def batch(self, count=1):
        """Open a batch and return its id."""
        answer = await self.post(f"{UPLOADS}/batches", {"fileCount": count})
        assert answer.status_code == 201, answer.text
        return answer.json()["batchId"]

    async def request(self, batch_id, name="heron.txt", size=SIZE):
        """Request a URL; return the answer's body."""
        answer = await self.ask_url(batch_id, name, size)
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def ask_url(self, batch_id, name="heron.txt", size=SIZE):
        body = {"fileName": name, "fileSize": size}
        return await self.post(f"{UPLOADS}/batches/{batch_id}/upload-urls", body)

    async def put(self, asked, content=TEXT):
        return await self.client.put(
            asked["uploadUrl"], content=content, headers=asked["headers"]
        )

    async def confirm(self, asked, size=SIZE, **more):
        path = f"{UPLOADS}/batches/{asked['batchId']}/files/{asked['fileId']}/confirm"
        return await self.post(path, {"size": size, **more})

    async def upload(self, batch_id, content=TEXT, name="heron.txt"):
        """Upload and confirm a file; return its id."""
        asked = await self.request(batch_id, name, len(content))
        put = await self.put(asked, content)
        assert put.status_code == 200, put.text
        answer = await self.confirm(asked, len(content), md5=md5(content))
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"fileId": asked["fileId"], "status": "queued"}
        return asked["fileId"]

    async def file(self, file_id):
        answer = await self.get(f"{UPLOADS}/files/{file_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def show(self, batch_id):
        answer = await self.get(f"{UPLOADS}/batches/{batch_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def ended(self, file_id):
        """Wait until a file has ended, and return it."""
        return await self.until_file(file_id, *ENDED)

    async def until_file(self, file_id, *statuses):
        async def look():
            found = await self.file(file_id)
            return found if found["status"] in statuses else None

        return await until(look)

    async def completed(self, batch_id):
        """Wait until a batch is completed, and return it."""

        async def look():
            found = await self.show(batch_id)
            return found if found["status"] == "completed" else None

        return await until(look)

    async def events(self, batch_id, *types):
        """Return what was published of a batch so far, in order."""
        return await self.published(f"batch:{batch_id}", *types)

    async def published(self, topic, *types):
        from backburner.stores.tables import events  # noqa: PLC0415

        def look(view):
            rows = events.select().where(events.c.topic == topic)
            return view.connection.execute(rows.order_by(events.c.seq)).all()

        found = await self.backburner.read(look)
        return [
            (row.type, orjson.loads(row.data))
            for row in found
            if not types or row.type in types
        ]

    async def until_event(self, batch_id, type_, count=1):
        """Wait until so many events of a type were published; return their data."""

        async def look():
            found = await self.events(batch_id, type_)
            return found if len(found) >= count else None

        return [data for _, data in await until(look)]

    async def path_of(self, batch_id, file_id):
        """Return the states that a file went through."""
        changes = await self.events(batch_id, "file:status-changed")
        return [
            (data["from"], data["to"])
            for _, data in changes
            if data["fileId"] == file_id
        ]

    async def rows(self, table):
        def look(view):
            return view.connection.execute(table.select()).all()

        return await self.backburner.read(look)

    async def row(self, file_id):
        return next(row for row in await self.rows(tables.files) if row.id == file_id)

    def lines(self, event):
        """Return the log lines of an event."""
        lines = map(orjson.loads, self.log.getvalue().splitlines())
        return [line for line in lines if line["event"] == event]

    async def key(self, user, *scopes, tenant="default"):
        """Return this process as another user calls it."""
        wanted = frozenset(scopes or USER)
        made = NewKey("a key", wanted, user=user)
        _, text = await self.backburner.keys.create(made, Actor("tests", tenant))
        return self.by({"Authorization": f"Bearer {text}"})


async def until(is_so, seconds=90.0):
    """Wait until something is so, and return it."""
    async with asyncio.timeout(seconds):
        while not (found := await is_so()):
            await pause()
        return found


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
            return stack.enter_async_context(running(store_url, **options))

        yield begin


async def _pages(backburner):
    origins = await backburner.upload_origins()
    return static.routes("documents", documents_app.pages, origins)


@asynccontextmanager
async def running(store, *, works=True, keyed=False, provider=None, **settings):
    names = DocumentsSettings.model_fields
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
        backburner = Backburner(
            chosen,
            apps=[documents_app],
            app_settings=[DocumentsSettings(**{**FAST, **ours})],
            ai=provider,
        )
        await stack.enter_async_context(backburner)
        if works:
            await backburner.start_worker()
        routes = await stack.enter_async_context(documents_app.serves(backburner))
        app = http.build(
            backburner.engine,
            chosen,
            keys=backburner.keys,
            authenticate=by_key(backburner.keys) if keyed else as_developer,
            app_routes=[*routes, *await _pages(backburner)],
        )
        await stack.enter_async_context(_serving(app, chosen, listener))
        client = httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False)
        await stack.enter_async_context(client)
        yield Documents(client, url, backburner, log)
    structlog.reset_defaults()
