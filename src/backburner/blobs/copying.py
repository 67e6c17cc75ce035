"""Copies contents from one blob store to another."""

import hashlib
from collections.abc import Iterator
from typing import Final

from backburner.domain.blobs.blob import BlobKey
from backburner.domain.errors import BlobMissing
from backburner.domain.jobs.job import Instant
from backburner.ports.blobs import BlobStore

PAGE: Final = 500
SOON: Final = 60_000
"""Milliseconds to look ahead, so that contents written just now are included."""


def copy(source: BlobStore, target: BlobStore, *, now: Instant) -> int:
    """Copy contents that are missing or different; return the number of contents."""
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
        raise BlobMissing(f"the copy of blob {key.id} differs from the original")


def _digest(blobs: BlobStore, key: BlobKey) -> bytes | None:
    """Return the hash of a content; `None` if there is none."""
    digest = hashlib.sha256()
    try:
        for piece in _pieces(blobs, key):
            digest.update(piece)
    except BlobMissing:
        return None
    return digest.digest()


def _pieces(blobs: BlobStore, key: BlobKey) -> Iterator[bytes]:
    """Yield a content in pieces, with bounded memory; raise `BlobMissing`."""
    offset, size = 0, blobs.size(key)
    while offset < size:
        piece = blobs.read(key, offset=offset, size=blobs.read_size)
        if not piece:
            raise BlobMissing(f"blob {key.id} has {offset} bytes instead of {size}")
        offset += len(piece)
        yield piece
