"""`documents` in one process, over real databases, with real uploads."""

import hashlib
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest

from backburner_apps.documents import app as documents_app
from backburner_apps.documents import tables
from backburner_apps.documents.settings import DocumentsSettings
from tests.apps.process import Process, served, take, until
from tests.databases import each_store

store_url = each_store
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
class Documents(Process):
    """A running process with `documents`, and a client of it."""

    headers: Any = None

    def by(self, headers):
        """Return the same process, called with other headers."""
        return replace(self, headers=headers)

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

    async def row(self, file_id):
        return next(row for row in await self.rows(tables.files) if row.id == file_id)

    async def key(self, user, *scopes, tenant="default"):
        """Return this process as another user calls it."""
        return self.by(await super().key(user, *(scopes or USER), tenant=tenant))


@pytest.fixture
async def start(store_url):
    """Start processes over one database."""
    async with AsyncExitStack() as stack:

        def begin(**options: Any):
            return stack.enter_async_context(running(store_url, **options))

        yield begin


def running(store, **options):
    ours = [DocumentsSettings(**FAST | take(options, DocumentsSettings))]
    return served(store, [documents_app], ours, kind=Documents, pages=True, **options)
