"""Blobs in the memory of this process, for tests."""

from collections.abc import Sequence
from typing import Literal

from backburner.domain.blobs.blob import BlobKey
from backburner.domain.errors import BlobMissing
from backburner.domain.jobs.job import Instant
from backburner.ports.blobs import BlobWriter, DirectUrl, UrlTerms
from backburner.ports.clock import Clock
from backburner.ports.finding import Finding, Status


class MemoryBlobs:
    """A `BlobStore` that only this process sees."""

    read_size = 1024 * 1024

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, dict[str, bytes]] = {}
        self._put_at: dict[str, Instant] = {}

    def put(self, blobs: Sequence[tuple[BlobKey, bytes]]) -> None:
        for key, content in blobs:
            self._kept.setdefault(key.job, {})[key.name] = content
            self._put_at[key.job] = self._clock.now()

    def writer(self, key: BlobKey) -> BlobWriter:
        return _Part(self, key)

    def read(self, key: BlobKey, *, offset: int = 0, size: int = -1) -> bytes:
        try:
            content = self._kept[key.job][key.name]
        except KeyError:
            raise BlobMissing(f"there is no blob {key.id}") from None
        return content[offset:] if size < 0 else content[offset : offset + size]

    def size(self, key: BlobKey) -> int:
        return len(self.read(key))

    def names(self, job: str) -> Sequence[str]:
        return sorted(self._kept.get(job, {}))

    def delete(self, jobs: Sequence[str]) -> None:
        for job in jobs:
            self._kept.pop(job, None)
            self._put_at.pop(job, None)

    def jobs(self, *, before: Instant, after: str | None, limit: int) -> Sequence[str]:
        old = sorted(job for job, at in self._put_at.items() if at < before)
        return [job for job in old if after is None or job > after][:limit]

    def discard_unfinished(self, *, before: Instant) -> int:
        del before
        return 0

    def sign(
        self, method: Literal["GET", "PUT"], key: BlobKey, terms: UrlTerms
    ) -> DirectUrl | None:
        del method, key, terms
        return None

    def examine(self) -> Sequence[Finding]:
        return [
            Finding(Status.PASS, "blobs", "in memory, lost at the end of this process")
        ]


class _Part:
    """A content that is being written."""

    def __init__(self, blobs: MemoryBlobs, key: BlobKey) -> None:
        self._blobs = blobs
        self._key = key
        self._pieces: list[bytes] = []

    def write(self, piece: bytes) -> None:
        self._pieces.append(bytes(piece))

    def finish(self) -> None:
        self._blobs.put([(self._key, b"".join(self._pieces))])

    def abort(self) -> None:
        self._pieces.clear()
