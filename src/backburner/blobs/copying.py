"""Contents from one blob store to another."""

from typing import Final

from backburner.domain.blob import BlobKey
from backburner.domain.errors import BlobMissing
from backburner.domain.job import Instant
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
    content = source.read(key)
    if _found(target, key) == content:
        return
    target.put([(key, content)])
    if _found(target, key) != content:
        raise BlobMissing(f"blob {key.id} did not arrive as it was sent")


def _found(blobs: BlobStore, key: BlobKey) -> bytes | None:
    try:
        return blobs.read(key)
    except BlobMissing:
        return None
