"""
Streams a blob to a place and back, and prints the rates and the growth of memory.

    python -m bench.blobs sqlite:///jobs.db s3://bucket/prefix 100

It is a separate process, so that only its own memory is measured.
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
"""MiB that are streamed first, so that one-time allocations are not growth."""


async def pieces(size: int) -> AsyncIterator[bytes]:
    """Yield `size` MiB of new bytes, in chunks of the size that a socket gives."""
    for _ in range(size * MIB // CHUNK):
        yield bytes(range(256)) * (CHUNK // 256)


async def stream(blobs: AppBlobs, size: int) -> dict[str, Any]:
    """Write, read and delete a blob of `size` MiB; return the rates."""
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
    """Return this process's peak memory, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure(store: str, place: str, size: int) -> dict[str, Any]:
    """Return the rates and the memory of streaming `size` MiB both ways."""
    settings = Settings(store=store, blobs=place, blob_limit=size * MIB + WARM_UP * MIB)
    async with Backburner(settings) as bb:
        blobs = bb.blobs("bench")
        await stream(blobs, WARM_UP)
        before = peak()
        figures = await stream(blobs, size)
    return figures | {"growth_mb": peak() - before}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
