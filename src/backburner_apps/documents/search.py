"""
Searches the chunks of one user by meaning and by keywords.

`ranking.fuse` merges both lists. Without vectors, only keywords are used, and the
result says so. At the end the results are read from the database, so that a deleted
file is never returned, even if a cache still has its vectors.
"""

import asyncio
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import sqlalchemy as sa

from backburner import Backburner, Context, Owner, View
from backburner.tables import owned_by
from backburner_apps.documents import pgvector
from backburner_apps.documents.chunk_tables import chunks, owners
from backburner_apps.documents.embed_work import Question, embed_question, question_of
from backburner_apps.documents.full_text import Filters, full_text, prefix_of, term
from backburner_apps.documents.ranking import (
    SPREADS,
    WEIGHTS,
    Match,
    Weights,
    fuse,
    snippet,
)
from backburner_apps.documents.settings import DocumentsSettings
from backburner_apps.documents.tables import files
from backburner_apps.documents.vector_cache import IndexStatus, VectorCache
from backburner_apps.documents.words import query_words

MAX_QUERY: Final = 1_000
"""Maximum number of characters of a question; the rest is ignored."""
LIMIT: Final = 10
MAX_LIMIT: Final = 50
DEPTH: Final = 100
"""Number of entries of each list that are merged."""
c = chunks.c

Mode = Literal["hybrid", "keyword"]
Place = Backburner | Context
"""What a search reads the database with: in a route or in a job."""


class Result(NamedTuple):
    """A chunk that was found."""

    file_id: str
    file_name: str
    batch_id: str
    page: int | None
    score: float
    snippet: str
    text: str
    """The text of the chunk; not part of the HTTP response."""


class SearchResults(NamedTuple):
    """The results, best first, and the mode of the search."""

    results: Sequence[Result]
    mode: Mode


class Ranked(NamedTuple):
    """Scores of chunks by their `seq`, best first, and the mode of the search."""

    scores: dict[int, float]
    mode: Mode


class _Index(NamedTuple):
    """What there is to search of an owner."""

    status: IndexStatus
    prefix: str
    """The beginning of the owner's words."""
    has_pgvector: bool


async def search(
    place: Place,
    owner: Owner,
    text: str,
    *,
    batch_id: str | None = None,
    file_id: str | None = None,
    limit: int = LIMIT,
) -> SearchResults:
    """Find the chunks of a user's files that answer a question best."""
    limit = max(1, min(limit, MAX_LIMIT))
    return await find(place, owner, text, Filters(batch_id, file_id), limit)


async def find(
    place: Place,
    owner: Owner,
    text: str,
    filters: Filters,
    limit: int,
    weights: Weights = WEIGHTS,
) -> SearchResults:
    """Search with given weights for the two lists."""
    ranked = await rank(place, owner, text, filters, limit, weights)
    return await results(place, owner, text, ranked, limit)


async def rank(
    place: Place,
    owner: Owner,
    text: str,
    filters: Filters,
    limit: int,
    weights: Weights = WEIGHTS,
) -> Ranked:
    """Return the chunks that match a question best, by their `seq`."""
    text = text[:MAX_QUERY]
    index = await place.read(_index, owner)
    if index is None:
        return Ranked({}, "keyword")
    # Both searches at once: neither needs what the other one finds.
    words = asyncio.create_task(
        place.read(_by_words, index, query_words(text), filters)
    )
    try:
        has_vectors = index.status.version > 0
        question = await _question(place, owner, text) if has_vectors else None
        similar = await _by_meaning(place, index, question, filters, limit)
        lexical = await words
    finally:
        words.cancel()
    spread = SPREADS.get(question.model.split("/")[0]) if question else None
    scores = fuse(lexical, similar, weights, spread)
    return Ranked(scores, "keyword" if similar is None else "hybrid")


async def results(
    place: Place, owner: Owner, text: str, ranked: Ranked, limit: int
) -> SearchResults:
    """Read the best of the ranked chunks, without deleted and repeated ones."""
    wanted, scores = query_words(text[:MAX_QUERY]), ranked.scores
    seqs, best = [*scores], list[Any]()
    for start in range(0, len(seqs), limit * 2):
        some = seqs[start : start + limit * 2]
        rows = {row.seq: row for row in await place.read(_rows, owner, some)}
        best = _different([*best, *(rows[seq] for seq in some if seq in rows)])
        if len(best) >= limit:
            break
    found = [_result(row, scores[row.seq], wanted) for row in best[:limit]]
    return SearchResults(found, ranked.mode)


async def _question(place: Place, owner: Owner, text: str) -> Question | None:
    if isinstance(place, Context):
        return await question_of(place, text)
    return await place.run(embed_question, text, owner=owner)


def _index(view: View, owner: Owner) -> _Index | None:
    """Return what there is to search; `None` if the user has no chunks."""
    row = view.connection.execute(
        owners.select().where(owned_by(owners, owner))
    ).first()
    if row is None:
        return None
    status = IndexStatus(owner, row.token, row.chunks, row.version, row.removed)
    is_used = pgvector.extension(view.connection).is_used
    return _Index(status, prefix_of(row.number), is_used)


def _by_words(
    view: View, index: _Index, wanted: Sequence[str], filters: Filters
) -> list[Match]:
    """Return the chunks with these words."""
    terms = [term(index.prefix, word) for word in wanted]
    return full_text(view.connection).find(terms, filters, index.status.chunks, DEPTH)


async def _by_meaning(
    place: Place,
    index: _Index,
    question: Question | None,
    filters: Filters,
    limit: int,
) -> list[Match] | None:
    """Return similar chunks; `None` if there is nothing to compare with."""
    if question is None:
        return None
    standing, most = index.status, DEPTH
    cache = _cache(place.settings_of(DocumentsSettings).vector_memory)
    # Memory is faster, as the database reads all vectors for each search.
    in_database = (
        index.has_pgvector
        and pgvector.fits(question.vector)
        and not cache.has_room(standing, len(question.vector))
    )
    has_only = bool(filters.given) and not in_database
    only = await place.read(_hashes, standing.owner, filters) if has_only else None
    while True:
        if in_database:
            where = standing.owner, *question, most, filters
            near = await place.read(pgvector.nearest, *where)
        else:
            near = await cache.nearest(place.read, standing, question, most, only)
        found = await place.read(_chunks_of, standing.owner, near, filters)
        # If many of them belong to deleted chunks, look for more.
        if len(found) >= limit or len(near) < most:
            return found[:DEPTH] if near else None
        most *= 4


@functools.cache
def _cache(most_bytes: int) -> VectorCache:
    """Return the cache of this process."""
    return VectorCache(most_bytes)


def _hashes(view: View, owner: Owner, filters: Filters) -> set[str]:
    query = sa.select(c.content_hash).where(owned_by(chunks, owner), *_where(filters))
    return {row[0] for row in view.connection.execute(query)}


def _chunks_of(
    view: View, owner: Owner, near: Mapping[str, float], filters: Filters
) -> list[Match]:
    """Return the chunks with these contents, the most similar first."""
    query = sa.select(c.content_hash, c.seq).where(
        owned_by(chunks, owner), c.content_hash.in_([*near]), *_where(filters)
    )
    rows = view.connection.execute(query)
    found = [Match(row.seq, near[row.content_hash]) for row in rows]
    return sorted(found, key=lambda match: (-match.score, match.seq))


def _where(filters: Filters) -> list[sa.ColumnElement[bool]]:
    return [c[name] == value for name, value in filters.given.items()]


def _rows(view: View, owner: Owner, seqs: Sequence[int]) -> Sequence[Any]:
    joined = chunks.join(files, files.c.id == c.file_id)
    whose = files.c.tenant.label("file_tenant"), files.c.user.label("file_user")
    query = sa.select(chunks, files.c.name, *whose).select_from(joined)
    # Owners are compared here: in the query, SQLite would read all chunks of the owner.
    mine = owner.tenant, owner.user, owner.tenant, owner.user
    return [
        row
        for row in view.connection.execute(query.where(c.seq.in_(seqs)))
        if (row.tenant, row.user, row.file_tenant, row.file_user) == mine
    ]


def _different(rows: Iterable[Any]) -> list[Any]:
    """Keep only the first of equal chunks of a file."""
    first = dict[tuple[str, str], Any]()
    for row in rows:
        first.setdefault((row.file_id, row.content_hash), row)
    return [*first.values()]


def _result(row: Any, score: float, wanted: Sequence[str]) -> Result:
    return Result(
        row.file_id,
        row.name,
        row.batch_id,
        row.page,
        round(score, 6),
        snippet(row.text, wanted),
        row.text,
    )
