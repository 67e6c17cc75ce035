"""Contents of any size in and out of a blob store, with bounded memory."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from backburner.domain.blobs.blob import BlobKey
from backburner.domain.errors import BlobMissing, BlobTooLarge
from backburner.ports.blobs import BlobStore, BlobWriter
from backburner.ports.faults import Faults

T = TypeVar("T")

PIECE: Final = 1024 * 1024
"""The approximate number of bytes in memory while a content is written."""

Source = bytes | Iterable[bytes] | AsyncIterable[bytes]
"""
The source of a content: all at once, or in pieces.

A plain iterable is read by the event loop: it must not block.
"""


class Measured(NamedTuple):
    """The size and digests of a written content."""

    size: int
    sha256: str
    md5: str | None
    """Only if requested."""


class _Measure:
    """Counts and hashes the pieces of a content."""

    def __init__(self, writer: BlobWriter, *, md5: bool) -> None:
        self._writer = writer
        self._size = 0
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False) if md5 else None

    def write(self, piece: bytes) -> None:
        self._size += len(piece)
        self._sha256.update(piece)
        if self._md5 is not None:
            self._md5.update(piece)
        self._writer.write(piece)

    def finish(self) -> Measured:
        self._writer.finish()
        md5 = None if self._md5 is None else self._md5.hexdigest()
        return Measured(self._size, self._sha256.hexdigest(), md5)


async def write(
    blobs: BlobStore,
    key: BlobKey,
    source: Source,
    *,
    limit: int,
    faults: Faults,
    md5: bool = False,
) -> Measured:
    """
    Write a content while it is read; durable when this returns.

    If the source fails, has more than `limit` bytes or the caller is cancelled,
    nothing is left.
    """
    writer = await in_thread(blobs.writer, key)
    measure = _Measure(writer, md5=md5)
    try:
        async for piece in _gathered(_pieces(source), limit):
            await in_thread(measure.write, piece)
            faults.hit("blobs.streaming")
        measured = await in_thread(measure.finish)
    except BaseException:
        await in_thread(writer.abort)
        raise
    faults.hit("blobs.streamed")
    return measured


async def read(
    blobs: BlobStore, key: BlobKey, *, offset: int, size: int
) -> AsyncGenerator[bytes, None]:
    """Yield `size` bytes of a content; `BlobMissing` if it has fewer."""
    end = offset + size
    while offset < end:
        asked = min(blobs.read_size, end - offset)
        piece = await in_thread(_part, blobs, key, offset, asked)
        if not piece:
            raise BlobMissing(f"blob {key.id} has {offset} bytes of {end}")
        offset += len(piece)
        yield piece


def _part(blobs: BlobStore, key: BlobKey, offset: int, size: int) -> bytes:
    return blobs.read(key, offset=offset, size=size)


async def in_thread(call: Callable[..., T], *arguments: Any) -> T:
    """
    Run a blocking call in a thread and return its result.

    A cancelled caller waits for the end of the call, so that nothing runs concurrently
    with it.
    """
    running = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    cancelled = await ended(running)
    if cancelled is not None:
        raise cancelled
    return running.result()


async def ended(running: "asyncio.Future[Any]") -> asyncio.CancelledError | None:
    """
    Wait for the end of a task, also if the caller is cancelled meanwhile.

    Returns that cancellation, which the caller raises once it has used the outcome.
    """
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if not running.cancelled():
        running.exception()  # otherwise asyncio would log that it was never retrieved
    return cancelled


async def _pieces(source: Source) -> AsyncGenerator[bytes, None]:
    if isinstance(source, bytes):
        for begin in range(0, len(source), PIECE):
            yield source[begin : begin + PIECE]
    elif isinstance(source, AsyncIterable):
        async for piece in source:
            yield piece
    else:
        for piece in source:
            yield piece


async def _gathered(
    pieces: AsyncIterable[bytes], limit: int
) -> AsyncGenerator[bytes, None]:
    """Yield larger pieces; raise as soon as there are too many bytes."""
    held: list[bytes] = []
    size = waiting = 0
    async for piece in pieces:
        size += len(piece)
        if size > limit:
            raise BlobTooLarge(f"the content has more than {limit} bytes")
        held.append(piece)
        waiting += len(piece)
        if waiting >= PIECE:
            yield held[0] if len(held) == 1 else b"".join(held)
            held, waiting = [], 0
    if held:
        yield b"".join(held)
