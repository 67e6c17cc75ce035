"""
Searches over 100,000 chunks of one user, and chunks embedded per second.

The chunks have words as frequent as those of a language, without its stop words, and
random vectors. Each search embeds its question by the offline model, so that is part of
its time. The first search, which reads the vectors into memory, is measured apart. On a
server that has pgvector the same searches are repeated when the vectors were copied for
it, which changes nothing as they fit in memory, and once more without that memory.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from backburner import Backburner, Owner, Settings, read_settings
from backburner_apps.documents import search
from backburner_apps.documents.chunk_store import SLICE, replace_chunks
from backburner_apps.documents.chunking import Chunk, content_hash
from backburner_apps.documents.embed_work import packed, store_vectors
from backburner_apps.documents.embedding.folder import NAMES, cache_folder
from backburner_apps.documents.embedding.prepare import prepare
from backburner_apps.documents.embedding.runtime import load
from backburner_apps.documents.pgvector import extension, index_vectors
from backburner_apps.documents.settings import DocumentsSettings
from backburner_apps.documents.vector_cache import VectorCache
from bench.meter import NotTrueError, quantiles, rss_mb
from bench.retrieval import APP, add_row, read_corpus
from bench.servers import ask

OWNER = Owner("default", "reader")
MODEL = f"minilm/{NAMES['minilm']}"
DIMENSION = 384
VOCABULARY = 40_000
STOP_WORDS = 100
WORDS = 110
"""The number of words of a chunk of 160 that are not stop words."""
ASKED = 6
SEARCHES = 200
EMBEDDED = 128
PARAGRAPHS = 4
"""The number of them in a text of about 130 words."""
SEED = 7
INDEX = (
    "CREATE INDEX ix_documents_words ON documents_words "
    "USING gin (words) WITH (fastupdate = off)"
)
"""The index as the migration creates it."""
ANALYSE = "VACUUM (ANALYZE)"
"""As autovacuum does some minutes after so many rows were added."""

Figures = dict[str, Any]


class Language:
    """Random words with frequencies by Zipf's law."""

    def __init__(self) -> None:
        ranks = np.arange(STOP_WORDS, STOP_WORDS + VOCABULARY)
        self._shares = (1 / ranks) / (1 / ranks).sum()
        self.random = np.random.default_rng(SEED)

    def words(self, count: int) -> list[str]:
        """Draw words."""
        drawn = self.random.choice(VOCABULARY, count, p=self._shares)
        return [f"w{number}" for number in drawn]


async def fill(bb: Backburner, count: int) -> None:
    """Store chunks and their vectors, some hundred in each file."""
    language = Language()
    for first in range(0, count, SLICE):
        size = min(SLICE, count - first)
        drawn = language.words(size * WORDS)
        parts = [
            Chunk(number, 1, text, content_hash(text))
            for number in range(size)
            for text in [" ".join(drawn[number * WORDS : (number + 1) * WORDS])]
        ]
        vectors = language.random.standard_normal((size, DIMENSION))
        rows = [
            (part.content_hash, DIMENSION, packed(vector))
            for part, vector in zip(parts, vectors, strict=True)
        ]
        file_id = f"file-{first}"
        await bb.transact(add_row, OWNER, file_id)
        await bb.transact(replace_chunks, OWNER, file_id, "batch", parts)
        await bb.transact(store_vectors, OWNER, MODEL, rows)


def questions(count: int) -> Iterator[str]:
    """Yield questions with frequent and rare words."""
    language = Language()
    for _ in range(count):
        yield " ".join(language.words(ASKED))


def prepared_folder() -> Path:
    """Return the folder of the offline model, after preparing it if necessary."""
    cache = cache_folder(read_settings(DocumentsSettings).models)
    return prepare("minilm", cache, lambda line: print(line, file=sys.stderr))


async def searched(url: str, count: int) -> Figures:
    """Run searches one after the other; return how long they took."""
    await asyncio.to_thread(prepared_folder)
    async with Backburner(Settings(store=url, ai=()), apps=[APP]) as bb:
        # An index that is made afterwards takes a small part of the time.
        is_postgres = url.startswith("postgresql")
        if is_postgres:
            await asyncio.to_thread(ask, url, "DROP INDEX ix_documents_words")
        await fill(bb, count)
        if is_postgres:
            await asyncio.to_thread(ask, url, INDEX)
            await asyncio.to_thread(ask, url, ANALYSE)
        begun = time.perf_counter()
        await _found(bb, "w1 w2 w3")
        first = time.perf_counter() - begun
        waits = await _timed(bb)
        start = {"first_ms": round(first * 1000), "rss_mb": rss_mb()}
        more = await _with_pgvector(bb, url)
    return quantiles(waits) | {"p95_ms": _p95(waits)} | start | more


async def _timed(bb: Backburner) -> list[float]:
    for question in questions(5):
        await _found(bb, question)
    waits = []
    for question in questions(SEARCHES):
        begun = time.perf_counter()
        await _found(bb, question)
        waits.append(time.perf_counter() - begun)
    return waits


async def _with_pgvector(bb: Backburner, url: str) -> Figures:
    """Copy the vectors into the index of pgvector and search again, if there is one."""
    begun = time.perf_counter()
    await bb.start_worker()
    await (await bb.submit(index_vectors, None)).result()
    copied = time.perf_counter() - begun
    if not (await bb.read(lambda view: extension(view.connection))).is_used:
        return {}
    await asyncio.to_thread(ask, url, ANALYSE)
    waits = await _timed(bb)
    with patch.object(search, "_cache", lambda _most_bytes: VectorCache(0)):
        in_database = await _timed(bb)
    return {
        "pgvector_p50_ms": quantiles(waits)["p50_ms"],
        "pgvector_p95_ms": _p95(waits),
        "pgvector_copy_seconds": round(copied, 1),
        "in_database_p50_ms": quantiles(in_database)["p50_ms"],
        "in_database_p95_ms": _p95(in_database),
    }


def _p95(waits: list[float]) -> float:
    return round(sorted(waits)[int(len(waits) * 0.95)] * 1000, 1)


async def _found(bb: Backburner, question: str) -> None:
    found = await search.search(bb, OWNER, question)
    if found.mode != "hybrid" or len(found.results) != search.LIMIT:
        raise NotTrueError(
            f"a {found.mode} search found {len(found.results)}: is the offline model "
            "prepared? `backburner documents prepare`"
        )


async def embedded() -> Figures:
    """Embed texts of about 130 words; return the rate per second."""
    corpus = read_corpus("paraphrased-english")
    lines = [text for article in corpus.articles.values() for text in article]
    texts = [" ".join(lines[n : n + PARAGRAPHS]) for n in range(EMBEDDED)]
    model = await asyncio.to_thread(lambda: load(prepared_folder()))
    await asyncio.to_thread(model.embed, texts[:8])
    begun, cpu = time.perf_counter(), time.process_time()
    read = await asyncio.to_thread(model.embed, texts)
    wall, used = time.perf_counter() - begun, time.process_time() - cpu
    return {
        "per_second": round(EMBEDDED / wall, 1),
        "cpu_us": round(used / EMBEDDED * 1e6),
        "tokens": round(read.tokens / EMBEDDED),
    }
