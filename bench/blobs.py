"""
Streams a blob in and out of a place, and says how fast it was and how memory grew.

    python -m bench.blobs sqlite:///jobs.db s3://bucket/prefix 100

It is a process of its own, so that no memory of others is counted.
"""

import asyncio
import hashlib
import json
import resource
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from backburner import AppBlobs, Backburner, Settings

MIB = 1024 * 1024
CHUNK = MIB // 16
WARM_UP = 16
"""MiB that are streamed first: what is loaded and kept for that is no growth."""


async def pieces(size: int) -> AsyncIterator[bytes]:
    """Yield so many MiB, in chunks as they come from a socket: new bytes each."""
    for _ in range(size * MIB // CHUNK):
        yield bytes(range(256)) * (CHUNK // 256)


async def stream(blobs: AppBlobs, size: int) -> dict[str, Any]:
    """Write, read and delete a blob of so many MiB; return the rates."""
    begun = time.perf_counter()
    blob = await blobs.write(pieces(size))
    written, digest = time.perf_counter(), hashlib.sha256()
    async for piece in blobs.read(blob.id):
        digest.update(piece)
    read = time.perf_counter()
    await blobs.delete(blob.id)
    return {
        "is_same": (size * MIB, blob.sha256) == (blob.size, digest.hexdigest()),
        "write_mb": size / (written - begun),
        "read_mb": size / (read - written),
    }


def peak() -> float:
    """Return the most memory that this process had so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure(store: str, place: str, size: int) -> dict[str, Any]:
    """Return what streaming so many MiB both ways came to."""
    settings = Settings(store=store, blobs=place, blob_limit=size * MIB + WARM_UP * MIB)
    async with Backburner(settings) as bb:
        blobs = bb.blobs("bench")
        await stream(blobs, WARM_UP)
        before = peak()
        figures = await stream(blobs, size)
    return figures | {"growth_mb": peak() - before}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
