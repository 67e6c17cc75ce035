"""The blob store: contents that are too large for a row."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, NamedTuple, Protocol

from backburner.domain.blobs.blob import BlobKey
from backburner.domain.jobs.job import Instant
from backburner.ports.finding import Finding


class BlobWriter(Protocol):
    """
    One content that is being written piece by piece.

    Calls are plain, may block, and are made one at a time. End with `finish` or
    `abort`; a writer that is dropped, or whose process dies, leaves no content.
    """

    def write(self, piece: bytes) -> None:
        """Append a piece."""
        ...

    def finish(self) -> None:
        """Make the content durable and readable under its key, as `put` does."""
        ...

    def abort(self) -> None:
        """
        Discard what was written; does nothing after `finish` or a second time.

        It does not raise if the store fails: the sweeper deletes the rest.
        """
        ...


class UrlTerms(NamedTuple):
    """What a signed URL allows."""

    span: timedelta
    size: int | None = None
    """For PUT: exactly this many bytes."""
    limit: int | None = None
    """For PUT: at most this many bytes."""
    content_type: str | None = None
    """
    For PUT: the type that the client must send. For GET: the type of the response.
    """
    filename: str | None = None
    """For GET: the file name that a browser uses."""


class DirectUrl(NamedTuple):
    """A URL of the blob store itself, for reading or writing one content."""

    url: str
    headers: Mapping[str, str]
    """The headers that the client must send."""


class BlobStore(Protocol):
    """
    Stores contents under `(job, name)`; contents without a job have another id there.

    Calls are plain and may block: the engine makes them in a thread, a transaction body
    makes them where it runs. `StoreUnavailable` means that the call failed and may be
    repeated; `StoreFull` that there is no space left. Processes that share a store
    share its blobs. Blobs belong to one store: those without a row there are deleted.
    """

    @property
    def read_size(self) -> int:
        """The preferred number of bytes of a large content to read in one call."""
        ...

    def put(self, blobs: Sequence[tuple[BlobKey, bytes]]) -> None:
        """
        Store contents durably: when this returns, a row may refer to them.

        A content is visible as a whole or not at all, also after a crash. If this
        raises, some may have been stored. The same key replaces the content.
        """
        ...

    def writer(self, key: BlobKey) -> BlobWriter:
        """
        Start writing a content of unknown size with bounded memory.

        It is not visible before `finish`, which replaces a content of the same key.
        """
        ...

    def read(self, key: BlobKey, *, offset: int = 0, size: int = -1) -> bytes:
        """
        Return a content, or at most `size` bytes of it from `offset`.

        Raises `BlobMissing` if there is none.
        """
        ...

    def size(self, key: BlobKey) -> int:
        """Return how many bytes a content has; raises `BlobMissing` as above."""
        ...

    def names(self, job: str) -> Sequence[str]:
        """Return the names of a job's contents, sorted; there may be none."""
        ...

    def delete(self, jobs: Sequence[str]) -> None:
        """Delete all contents of these jobs; there may be none."""
        ...

    def jobs(self, *, before: Instant, after: str | None, limit: int) -> Sequence[str]:
        """
        Return jobs whose blobs were all put before `before`, in a stable order.

        `after` is the last job of the previous page. Blobs put meanwhile may be
        missing.
        """
        ...

    def discard_unfinished(self, *, before: Instant) -> int:
        """
        Discard writes that began before a time and are not listed by `jobs`.

        Return how many. A store that keeps unfinished writes with their job has none.
        """
        ...

    def sign(
        self, method: Literal["GET", "PUT"], key: BlobKey, terms: UrlTerms
    ) -> DirectUrl | None:
        """
        Return a URL with which clients access a content without this server.

        `None` if the store cannot sign URLs, or cannot enforce the terms.
        """
        ...

    def examine(self) -> Sequence[Finding]:
        """Check the store without changing it."""
        ...
