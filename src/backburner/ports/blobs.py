"""The blob store: contents that are too large for a row."""

from collections.abc import Sequence
from typing import Protocol

from backburner.domain.blob import BlobKey
from backburner.domain.job import Instant
from backburner.ports.finding import Finding


class BlobStore(Protocol):
    """
    Keeps contents under `(job, name)`.

    Calls are plain and may block: the engine makes them in a thread, a transaction
    body makes them where it runs. `StoreUnavailable` means that it did not work and
    that asking again is safe; `StoreFull` that there is no room. Processes that share
    a store share its blobs. They belong to one store: what it does not know is swept.
    """

    def put(self, blobs: Sequence[tuple[BlobKey, bytes]]) -> None:
        """
        Keep contents, durable: when this returns a row may name them.

        A name is seen with its whole content or not at all, also after a crash. If this
        raises, some may be there. The same key again replaces the content.
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
        """Return the names of a job's contents, sorted; none is no error."""
        ...

    def delete(self, jobs: Sequence[str]) -> None:
        """Forget everything of these jobs; that there is nothing is no error."""
        ...

    def jobs(self, *, before: Instant, after: str | None, limit: int) -> Sequence[str]:
        """
        Return jobs whose blobs were all put before `before`, in an order that stays.

        `after` is the last of the page before. What is put meanwhile may be missing.
        """
        ...

    def examine(self) -> Sequence[Finding]:
        """Look at where contents are kept, and change nothing."""
        ...
