"""
A cache of users' vectors, and the comparison of a question with them in memory.

An owner's row counts the transactions that added vectors, and each vector stores the
number of its transaction. A process therefore reads only vectors that are newer than
its cache. Vectors of deleted chunks may stay in the cache: a search finds no chunk for
them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from backburner import Owner, View
from backburner.tables import owned_by
from backburner_apps.documents.chunk_tables import FLOATS, vectors
from backburner_apps.documents.embed_work import Question

ROWS: Final = 1_000
"""Number of vectors that one query reads."""
HASH_BYTES: Final = 250
"""Estimated memory for the hash of a text, with its entries in two collections."""
ENTRY_BYTES: Final = 1_000
"""Estimated memory for a user in the cache, besides the vectors."""
BLOCKS: Final = 16
"""Number of parts of a user's vectors above which they are merged."""
LAST: Final = "~"
"""Sorts after every hash."""
STALE: Final = 1_000
"""Number of deleted vectors above which a user's vectors are read again."""
v = vectors.c

Read = Callable[..., Awaitable[Any]]
Matrix = npt.NDArray[np.float32]
Row = tuple[int, str, bytes]
"""The version, hash and content of a stored vector."""


class IndexStatus(NamedTuple):
    """The state of an owner's vectors, from the owner's row."""

    owner: Owner
    token: str
    chunks: int
    version: int
    removed: int


@dataclass(frozen=True)
class Block:
    """Some vectors, with the hashes of their texts."""

    hashes: Sequence[str]
    matrix: Matrix

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each hash."""
        return {content_hash: at for at, content_hash in enumerate(self.hashes)}

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return int(self.matrix.nbytes) + HASH_BYTES * len(self.hashes)

    def without(self, others: Collection[str]) -> "Block":
        """Return the vectors of texts that are not in `others`."""
        kept = [at for at, each in enumerate(self.hashes) if each not in others]
        if len(kept) == len(self.hashes):
            return self
        return Block([self.hashes[at] for at in kept], self.matrix[kept])

    def best(
        self, question: Matrix, most: int, only: Collection[str] | None
    ) -> list[tuple[float, str]]:
        """Return the most similar vectors among the texts in `only`, unordered."""
        if only is None:
            scores = self.matrix @ question
            rows = _largest(scores, most)
            return [(float(scores[row]), self.hashes[row]) for row in rows]
        chosen = [self.places[each] for each in only if each in self.places]
        scores = self.matrix[chosen] @ question
        best = _largest(scores, most)
        return [(float(scores[at]), self.hashes[chosen[at]]) for at in best]


@dataclass
class Entry:
    """The cached vectors of one user and model."""

    removed: int
    version: int = 0
    blocks: list[Block] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return ENTRY_BYTES + sum(block.size for block in self.blocks)

    @property
    def count(self) -> int:
        """The number of its vectors."""
        return sum(len(block.hashes) for block in self.blocks)

    def is_stale(self, standing: IndexStatus) -> bool:
        """Return whether enough vectors were deleted to read all of them again."""
        gone = standing.removed - self.removed
        return gone < 0 or gone > max(STALE, self.count // 10)


def bytes_of(dimension: int) -> int:
    """Return the memory that one vector takes in the cache."""
    return dimension * np.dtype(np.float32).itemsize + HASH_BYTES


class VectorCache:
    """Finds similar vectors, and caches those of the users who searched last."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._entries: OrderedDict[tuple[str, str, int], Entry] = OrderedDict()

    @property
    def size(self) -> int:
        """Size of all cached vectors, in bytes."""
        return sum(entry.size for entry in self._entries.values())

    def has_room(self, standing: IndexStatus, dimension: int) -> bool:
        """Return whether the vectors of a user fit in the cache."""
        return standing.chunks * bytes_of(dimension) <= self._most_bytes

    async def nearest(
        self,
        read: Read,
        standing: IndexStatus,
        question: Question,
        most: int,
        only: Collection[str] | None = None,
    ) -> dict[str, float]:
        """Return the hashes of the most similar texts, with their similarities."""
        wanted = np.asarray(question.vector, dtype=np.float32)
        source = Source(read, standing, question.model, wanted.size)
        if self.has_room(standing, wanted.size):
            blocks = await self._blocks(source)
            found = await asyncio.to_thread(_best, blocks, wanted, most, only)
        else:
            found = await _scan(source, wanted, most, only)
        return {content_hash: score for score, content_hash in found}

    async def _blocks(self, source: "Source") -> Sequence[Block]:
        """Return all vectors of a user and model, after reading new ones."""
        entry = self._entry(source.standing, source.model, source.size)
        async with entry.lock:
            if entry.version < source.standing.version:
                version, new = source.standing.version, list[Block]()
                async for last, block in source.newer(entry.version):
                    version = max(version, last)
                    new.append(block)
                # Set at the end, so that an interrupted search misses no vector later.
                entry.blocks = await asyncio.to_thread(_joined, entry.blocks, new)
                entry.version = version
                self._shrink(entry)
            return entry.blocks

    def _entry(self, standing: IndexStatus, model: str, size: int) -> Entry:
        key = standing.token, model, size
        entry = self._entries.get(key)
        if entry is None or entry.is_stale(standing):
            entry = self._entries[key] = Entry(standing.removed)
        self._entries.move_to_end(key)
        return entry

    def _shrink(self, newest: Entry) -> None:
        """Evict the users who have not searched for the longest time."""
        size = self.size
        for key in sorted(self._entries, key=lambda key: self._entries[key] is newest):
            if size <= self._most_bytes:
                return
            size -= self._entries.pop(key).size


class Source(NamedTuple):
    """Reads the vectors of one user and model from the database."""

    read: Read
    standing: IndexStatus
    model: str
    size: int

    async def newer(self, version: int) -> AsyncIterator[tuple[int, Block]]:
        """Yield blocks of newer vectors, each with its last version."""
        after = (version, LAST)
        while True:
            where = self.standing.owner, self.model, self.size, after
            rows = await self.read(_newer, *where)
            if not rows:
                return
            after = rows[-1][:2]
            yield after[0], await asyncio.to_thread(_block, rows, self.size)

    async def every(self) -> AsyncIterator[Block]:
        """Yield all vectors."""
        async for _, block in self.newer(-1):
            yield block

    async def chosen(self, hashes: Collection[str]) -> AsyncIterator[Block]:
        """Yield the vectors of some texts."""
        wanted, where = sorted(hashes), (self.standing.owner, self.model, self.size)
        for start in range(0, len(wanted), ROWS):
            rows = await self.read(_of, *where, wanted[start : start + ROWS])
            yield await asyncio.to_thread(_block, rows, self.size)


async def _scan(
    source: Source, question: Matrix, most: int, only: Collection[str] | None
) -> list[tuple[float, str]]:
    """Find the most similar vectors of a user who has too many for the cache."""
    found: list[tuple[float, str]] = []
    async for block in source.every() if only is None else source.chosen(only):
        part = await asyncio.to_thread(_best, [block], question, most, None)
        found = sorted([*found, *part], key=_order)[:most]
    return found


def _newer(
    view: View, owner: Owner, model: str, size: int, after: tuple[int, str]
) -> list[Row]:
    place = sa.tuple_(v.version, v.content_hash)
    query = (
        _select(owner, model, size)
        .where(place > sa.tuple_(*after))
        .order_by(v.version, v.content_hash)
        .limit(ROWS)
    )
    return [tuple(row) for row in view.connection.execute(query)]


def _of(
    view: View, owner: Owner, model: str, size: int, hashes: Sequence[str]
) -> list[Row]:
    query = _select(owner, model, size).where(v.content_hash.in_(hashes))
    return [tuple(row) for row in view.connection.execute(query)]


def _select(owner: Owner, model: str, size: int) -> sa.Select[Row]:
    mine = owned_by(vectors, owner), v.model == model, v.dimension == size
    return sa.select(v.version, v.content_hash, v.vector).where(*mine)


def _block(rows: Sequence[Row], size: int) -> Block:
    data = np.frombuffer(b"".join(row[2] for row in rows), dtype=FLOATS)
    matrix = data.reshape(-1, size).astype(np.float32)
    return Block([row[1] for row in rows], matrix)


def _joined(old: Sequence[Block], new: Sequence[Block]) -> list[Block]:
    """Return the blocks with each text once; merge them if there are many."""
    added = {each for block in new for each in block.hashes}
    blocks = [*(block.without(added) for block in old), *new]
    if len(blocks) <= BLOCKS:
        return blocks
    hashes = [each for block in blocks for each in block.hashes]
    return [Block(hashes, np.concatenate([block.matrix for block in blocks]))]


def _best(
    blocks: Sequence[Block],
    question: Matrix,
    most: int,
    only: Collection[str] | None,
) -> list[tuple[float, str]]:
    found = [pair for block in blocks for pair in block.best(question, most, only)]
    return sorted(found, key=_order)[:most]


def _order(pair: tuple[float, str]) -> tuple[float, str]:
    return -pair[0], pair[1]


def _largest(scores: npt.NDArray[Any], most: int) -> npt.NDArray[Any]:
    if len(scores) <= most:
        return np.arange(len(scores))
    return np.argpartition(-scores, most)[:most]
