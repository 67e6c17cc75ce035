"""
The three stages of a file: extract its text, split it into chunks, embed the chunks.

Each stage can run again at any time: it replaces what an earlier run has stored. What
a stage stores commits only while its worker holds the job and the file exists.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

import backburner_extractors as extractors
from backburner import (
    AppBlob,
    Cancel,
    Context,
    PermanentError,
    Transaction,
    TransientError,
    capability,
)
from backburner_apps.documents import changes, chunk_store, chunking, embed_work
from backburner_apps.documents.limits import (
    CHUNK,
    CHUNK_QUEUE,
    EMBED,
    EMBED_QUEUE,
    EXTRACT,
    EXTRACT_QUEUE,
    policy,
)
from backburner_apps.documents.settings import DocumentsSettings
from backburner_apps.documents.shapes import FileRef
from backburner_apps.documents.tables import files
from backburner_extractors import Extracted, ExtractionError, Limits, Page

LONGEST: Final = timedelta(minutes=15)
NO_TEXT: Final = "No extracted text available for chunking"
NO_CHUNKS: Final = "No chunks available for embedding"
GONE: Final = Cancel("the file was deleted")
_PAGES: Final = TypeAdapter(list[Page])
f = files.c


class FileDeleted(PermanentError):
    """The file was deleted while it was processed."""

    code = "FILE_DELETED"


@capability(EXTRACT, queue=EXTRACT_QUEUE, timeout=LONGEST, retry=policy(5.0))
async def extract(ctx: Context, value: FileRef) -> dict[str, Any] | Cancel:
    """Extract the text of a file, page by page, and keep it beside the file."""
    file = await ctx.read(changes.find, value.file_id)
    if file is None:
        return GONE
    limits = _limits(ctx.settings_of(DocumentsSettings))
    with tempfile.TemporaryDirectory(prefix="documents-") as folder:
        path = Path(folder) / "content"  # the user's name is never a path
        await _download(ctx.app_blobs.read(file.blob), path)
        found = await extract_text(path, file.name, limits)

    def keep(tx: Transaction, blob: AppBlob) -> None:
        _keep_text(tx, ctx, value.file_id, found, blob.id)

    content = await asyncio.to_thread(_PAGES.dump_json, [*found.pages])
    await ctx.app_blobs.write(
        content, name="pages.json", content_type="application/json", also=keep
    )
    return {"pages": len(found.pages), "contentType": found.content_type}


@capability(CHUNK, queue=CHUNK_QUEUE, timeout=LONGEST, retry=policy(3.0))
async def chunk(ctx: Context, value: FileRef) -> int | Cancel:
    """Split the text of a file into chunks and store them with the job's success."""
    file = await ctx.read(changes.find, value.file_id)
    if file is None:
        return GONE
    settings = ctx.settings_of(DocumentsSettings)
    pages = await _pages(ctx, file.text_blob)
    chunks = await split(pages, settings)
    if not chunks:
        raise PermanentError(NO_TEXT, code="NO_TEXT")

    await chunk_store.store_chunks(
        ctx, ctx.job.owner, value.file_id, value.batch_id, chunks
    )

    def store(tx: Transaction) -> None:
        _count_chunks(tx, value.file_id, len(chunks))

    ctx.at_settlement(store)
    return len(chunks)


@capability(EMBED, queue=EMBED_QUEUE, timeout=LONGEST, retry=policy(3.0))
async def embed(ctx: Context, value: FileRef) -> int | Cancel:
    """Embed the chunks of a file whose text has no vector yet."""
    file = await ctx.read(changes.find, value.file_id)
    if file is None:
        return GONE
    if not file.chunk_count:
        raise PermanentError(NO_CHUNKS, code="NO_CHUNKS")
    return await embed_chunks(ctx, value.file_id)


async def extract_text(path: Path, name: str, limits: Limits) -> Extracted:
    """Extract a file's text; an error says whether a retry can succeed."""
    try:
        return await extractors.extract(path, file_name=name, limits=limits)
    except ExtractionError as error:
        kind = TransientError if error.is_retryable else PermanentError
        raise kind(error.message, code=error.code) from error


async def split(
    pages: Sequence[Page], settings: DocumentsSettings
) -> list[chunking.Chunk]:
    """Split pages into chunks, outside the event loop."""
    return await asyncio.to_thread(
        chunking.chunk_pages,
        pages,
        max_tokens=settings.chunk_tokens,
        overlap=settings.chunk_overlap,
    )


async def embed_chunks(ctx: Context, file_id: str) -> int:
    """Embed chunks that have no vector; return their number."""
    return await embed_work.embed_missing(ctx, ctx.job.owner, file_id)


async def _download(pieces: AsyncIterable[bytes], path: Path) -> None:
    with path.open("wb") as target:
        async for piece in pieces:
            await asyncio.to_thread(target.write, piece)


async def _pages(ctx: Context, blob: str | None) -> list[Page]:
    if blob is None:
        raise PermanentError(NO_TEXT, code="NO_TEXT")
    content = b"".join([piece async for piece in ctx.app_blobs.read(blob)])
    return await asyncio.to_thread(_PAGES.validate_json, content)


def _limits(settings: DocumentsSettings) -> Limits:
    return Limits(
        memory_bytes=settings.extract_memory, wall_seconds=settings.extract_seconds
    )


def _keep_text(
    tx: Transaction, ctx: Context, file_id: str, found: Extracted, blob: str
) -> None:
    """Store the id of the extracted text in the file's row; delete an earlier text."""
    file = changes.find(tx, file_id)
    pages = sorted({image.page for image in found.images if image.page is not None})
    values = {
        "text_blob": blob,
        "content_type": found.content_type,
        "ocr": found.ocr,
        "images": {"count": len(found.images), "pages": pages},
        "updated_at": tx.now(),
    }
    # On PostgreSQL the file may be deleted after it was found.
    if file is None or not _write(tx, file_id, **values):
        raise FileDeleted("the file was deleted while its text was extracted")
    if file.text_blob is not None:
        ctx.app_blobs.remove(tx, [file.text_blob])


def _count_chunks(tx: Transaction, file_id: str, count: int) -> None:
    if not _write(tx, file_id, chunk_count=count, updated_at=tx.now()):
        raise FileDeleted("the file was deleted while it was split into chunks")


def _write(tx: Transaction, file_id: str, **values: Any) -> bool:
    """Store the results of a stage in the file's row, except its state."""
    statement = files.update().where(f.id == file_id).values(values)
    return bool(tx.connection.execute(statement).rowcount == 1)
