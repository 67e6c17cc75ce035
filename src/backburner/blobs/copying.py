"""Contents from one blob store to another."""

import hashlib
from collections.abc import Iterator
from typing import Final

from backburner.domain.blobs.blob import BlobKey
from backburner.domain.errors import BlobMissing
from backburner.domain.jobs.job import Instant
from backburner.ports.blobs import BlobStore

PAGE: Final = 500
SOON: Final = 60_000
"""Milliseconds; a content that was put this very moment is no exception."""


def copy(source: BlobStore, target: BlobStore, *, now: Instant) -> int:
    """Put what is missing or otherwise in the target; return how many contents."""
    count, after = 0, None
    while jobs := source.jobs(before=now + SOON, after=after, limit=PAGE):
        for job in jobs:
            for name in source.names(job):
                _copy(source, target, BlobKey(job, name))
                count += 1
        after = jobs[-1]
    return count


def _copy(source: BlobStore, target: BlobStore, key: BlobKey) -> None:
    digest = _digest(source, key)
    if _digest(target, key) == digest:
        return
    writer = target.writer(key)
    try:
        for piece in _pieces(source, key):
            writer.write(piece)
        writer.finish()
    except BaseException:
        writer.abort()
        raise
    if _digest(target, key) != digest:
        raise BlobMissing(f"blob {key.id} did not arrive as it was sent")


def _digest(blobs: BlobStore, key: BlobKey) -> bytes | None:
    """Return what equal contents have in common; `None` if there is no content."""
    digest = hashlib.sha256()
    try:
        for piece in _pieces(blobs, key):
            digest.update(piece)
    except BlobMissing:
        return None
    return digest.digest()


def _pieces(blobs: BlobStore, key: BlobKey) -> Iterator[bytes]:
    """Yield a content with bounded memory; `BlobMissing` if there is none."""
    offset, size = 0, blobs.size(key)
    while offset < size:
        piece = blobs.read(key, offset=offset, size=blobs.read_size)
        if not piece:
            raise BlobMissing(f"blob {key.id} has {offset} bytes of {size}")
        offset += len(piece)
        yield piece
