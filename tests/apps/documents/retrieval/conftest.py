"""Chunks and searches over real databases, without the pipeline before them."""

import os
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from backburner import App, Backburner, Context, ModelUse, Owner, capability, lazy
from backburner.settings import Settings
from backburner_apps.documents import (
    chunk_store,
    embed_work,
    pgvector,
    reembedding,
    search,
)
from backburner_apps.documents.chunk_tables import chunks, owners, vectors
from backburner_apps.documents.chunking import chunk_pages
from backburner_apps.documents.settings import DocumentsSettings
from backburner_apps.documents.tables import files

MODELS = Path(__file__).parents[4] / ".venv" / "models"
ADA, BOB = Owner("default", "ada"), Owner("default", "bob")
ELSEWHERE = Owner("other", "ada")


def page(text, number=1, kind="page"):
    return SimpleNamespace(number=number, text=text, kind=kind, name="")


@capability("test.store", queue="test")
async def store(ctx: Context, value: dict) -> None:
    parts = chunk_pages([page(*each) for each in value["pages"]])
    where = ctx.job.owner, value["file"], value["batch"]
    await chunk_store.store_chunks(ctx, *where, parts)


@capability("test.embed", queue="test")
async def embed(ctx: Context, file_id: str) -> int:
    return await embed_work.embed_missing(ctx, ctx.job.owner, file_id)


app = App(
    "documents",
    own=[
        *(store, embed, embed_work.embed_question),
        *(pgvector.index_vectors, *reembedding.OWN),
    ],
    models=[ModelUse("embedding", is_required=False, fallback="minilm")],
    migrations="backburner_apps.documents.migrations",
    tables=lazy("backburner_apps.documents.rows:all_tables"),
    settings=DocumentsSettings,
    erase=chunk_store.erase,
    rebuild=chunk_store.rebuild,
)


class Library:
    """Files and their chunks, in one process."""

    def __init__(self, bb):
        self.bb = bb

    async def file(self, owner, file_id, batch="b1", name=None):
        """Make the row of a file."""
        row = {
            "id": file_id,
            "tenant": owner.tenant,
            "user": owner.user,
            "batch_id": batch,
            "name": name or f"{file_id}.txt",
            "status": "ready",
            "upload": f"upload_{file_id}",
            **dict.fromkeys(("size", "expires_at", "created_at", "updated_at"), 0),
            "version": 1,
        }
        await self.bb.transact(lambda tx: tx.connection.execute(files.insert(), row))

    async def write(self, owner, file_id, *texts, batch="b1", kind="page"):
        """Make these texts the pages of a file."""
        parts = chunk_pages([page(text, n, kind) for n, text in enumerate(texts, 1)])
        where = owner, file_id, batch
        await self.bb.transact(chunk_store.replace_chunks, *where, parts)
        return parts

    async def add(self, owner, file_id, *texts, batch="b1", name=None):
        """Add a file with these pages, and embed it if there is a model."""
        await self.file(owner, file_id, batch, name)
        await self.write(owner, file_id, *texts, batch=batch)
        return await self.embed(owner, file_id)

    async def embed(self, owner, file_id):
        """Embed what has no vector yet, by a job."""
        return await (await self.bb.submit(embed, file_id, owner=owner)).result()

    async def delete(self, owner, *file_ids, limit=1_000):
        def body(tx):
            tx.connection.execute(files.delete().where(files.c.id.in_(file_ids)))
            return chunk_store.delete_chunks(tx, owner, file_ids, limit)

        return await self.bb.transact(body)

    async def search(self, owner, text, **how):
        return await search.search(self.bb, owner, text, **how)

    async def found(self, owner, text, **how):
        """Return which files a search finds, the best first."""
        results = (await self.search(owner, text, **how)).results
        return [result.file_id for result in results]

    async def rows(self, table):
        def look(view):
            return view.connection.execute(table.select()).mappings().all()

        return await self.bb.read(look)

    async def counts(self):
        """Count chunks, vectors and owners."""
        return [len(await self.rows(table)) for table in (chunks, vectors, owners)]


@asynccontextmanager
async def opened(
    store_url, *, ai=(), works=False, provider=None, app_settings=(), **more
):
    settings = Settings(
        store=store_url, poll_seconds=0.2, grace_seconds=0, ai=ai, **more
    )
    async with Backburner(
        settings, apps=[app], ai=provider, app_settings=app_settings
    ) as bb:
        if works:
            await bb.start_worker()
        yield Library(bb)


@pytest.fixture(autouse=True)
def _no_model(tmp_path, monkeypatch):
    """Have no prepared model, whatever this machine has."""
    monkeypatch.setenv("BACKBURNER_DOCUMENTS_MODELS", str(tmp_path / "models"))


@pytest.fixture
def model(_no_model, monkeypatch):
    """The model that `tools/setup test` prepares."""
    if not (MODELS / "all-MiniLM-L6-v2-int8" / "manifest.json").exists():
        missing = "the offline model is not prepared: run the tests by `make test`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    monkeypatch.setenv("BACKBURNER_DOCUMENTS_MODELS", str(MODELS))
    return MODELS


@pytest.fixture
async def start(store_url):
    """Open processes over one database."""
    async with AsyncExitStack() as stack:

        def begin(**how):
            return stack.enter_async_context(opened(store_url, **how))

        yield begin
