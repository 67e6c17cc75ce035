"""
Embeds chunks and questions through the AI layer.

A vector belongs to a text and a model, so a text that a user has already embedded is
not embedded again. Without a model, files are found by keywords only.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from backburner import Context, Owner, Transaction, View, WorkError, capability
from backburner.tables import insert, owned_by
from backburner_apps.documents import pgvector
from backburner_apps.documents.chunk_store import lock_owner
from backburner_apps.documents.chunk_tables import FLOATS, chunks, owners, vectors
from backburner_apps.documents.words import is_cjk

QUEUE: Final = "file-embed"
BATCH: Final = 32
"""Number of chunks that one call embeds."""
NO_MODEL: Final = frozenset({"AI_NOT_CONFIGURED", "AI_MODEL_NOT_PREPARED"})
"""Error codes that mean that no embedding model is available."""
ENGLISH_ONLY: Final = ("minilm/", "minilm-light/")
"""Models that do not understand Chinese, Japanese and Korean."""
c, v = chunks.c, vectors.c


class Question(NamedTuple):
    """The vector of a question, of length 1, and the model that computed it."""

    model: str
    vector: list[float]


def model_of(ctx: Context) -> str | None:
    """Return the name under which vectors of the configured model are stored."""
    choice = ctx.ai.first("embedding")
    return None if choice is None else f"{choice.provider}/{choice.model}"


def is_embedded(model: str, text: str) -> bool:
    """Return whether a model gives a useful vector for a text."""
    return not (model.startswith(ENGLISH_ONLY) and is_cjk(text))


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector in its stored form."""
    return bytes(_normalised(vector).astype(FLOATS).tobytes())


def _normalised(vector: Sequence[float]) -> npt.NDArray[np.float32]:
    """Return a vector of length 1; numbers that are not finite become 0."""
    floats = np.asarray(vector, dtype=np.float32)
    floats = np.where(np.isfinite(floats), floats, np.float32(0))
    return floats / (np.linalg.norm(floats) or np.float32(1))


@capability("documents.embed-question", queue=QUEUE, timeout=timedelta(seconds=30))
async def embed_question(ctx: Context, text: str) -> Question | None:
    """Return the vector of a question; called within a request, without a job."""
    return await question_of(ctx, text)


async def question_of(ctx: Context, text: str) -> Question | None:
    """Return the vector of a question; `None` if no model gives a useful one."""
    model = model_of(ctx)
    if model is None or not is_embedded(model, text):
        return None
    try:
        found = await ctx.embed([text], remember=False)
    except WorkError:
        # Search by keywords instead of failing.
        return None
    return Question(model, _normalised(found.vectors[0]).tolist())


async def embed_missing(ctx: Context, owner: Owner, file_id: str) -> int:
    """
    Embed the chunks of a file whose texts have no vector yet; return their number.

    Safe to repeat: each batch is stored before the next one is embedded. Without a
    model, nothing is embedded.
    """
    model, count = model_of(ctx), 0
    if model is None:
        return 0
    after = ""
    while texts := await ctx.read(_missing, owner, file_id, model, after):
        after = texts[-1][0]
        wanted = [pair for pair in texts if is_embedded(model, pair[1])]
        try:
            count += await _embed(ctx, owner, model, wanted)
        except WorkError as error:
            if error.problem_code in NO_MODEL:
                return count
            raise
    return count


async def _embed(
    ctx: Context, owner: Owner, model: str, texts: Sequence[tuple[str, str]]
) -> int:
    if not texts:
        return 0
    # The vectors are stored below, so they need not be stored as a step as well.
    found = await ctx.embed([text for _, text in texts], remember=False)
    rows = await asyncio.to_thread(
        lambda: [
            (content_hash, len(vector), packed(vector))
            for (content_hash, _), vector in zip(texts, found.vectors, strict=True)
        ]
    )
    return await ctx.transact(store_vectors, owner, model, rows)


def _missing(
    view: View, owner: Owner, file_id: str, model: str, after: str
) -> list[tuple[str, str]]:
    """Return hashes and texts of a file's chunks without a vector, some at a time."""
    has_one = sa.select(v.content_hash).where(
        owned_by(vectors, owner), v.content_hash == c.content_hash, v.model == model
    )
    query = (
        sa.select(c.content_hash, sa.func.min(c.text))
        .where(owned_by(chunks, owner), c.file_id == file_id, c.content_hash > after)
        .where(~has_one.exists())
        .group_by(c.content_hash)
        .order_by(c.content_hash)
        .limit(BATCH)
    )
    return [(row[0], row[1]) for row in view.connection.execute(query)]


def store_vectors(
    tx: Transaction,
    owner: Owner,
    model: str,
    rows: Sequence[tuple[str, int, bytes]],
) -> int:
    """Store vectors of texts that still have a chunk; return how many were new."""
    lock_owner(tx, owner)
    mine = owned_by(owners, owner)
    change = owners.update().where(mine).values(version=owners.c.version + 1)
    version = tx.connection.execute(change.returning(owners.c.version)).scalar_one()
    hashes = [row[0] for row in rows]
    query = sa.select(c.content_hash).where(
        owned_by(chunks, owner), c.content_hash.in_(hashes)
    )
    alive = {row[0] for row in tx.connection.execute(query)}
    new = [row for row in rows if row[0] in alive]
    if not new:
        return 0
    whose = {"tenant": owner.tenant, "user": owner.user}
    same = {**whose, "model": model, "version": version}
    values = [
        {**same, "content_hash": h, "dimension": size, "vector": data}
        for h, size, data in new
    ]
    statement = insert(tx.connection, vectors).on_conflict_do_nothing()
    tx.connection.execute(statement, values)
    pgvector.add(tx.connection, owner, model, new)
    return len(new)
