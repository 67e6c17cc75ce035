"""The contract for the rows of applications' blobs."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from backburner.domain.blobs.app_blob import AppBlob
from backburner.domain.jobs.job import Instant, Owner


class AppBlobStore(Protocol):
    """
    Rows of contents that belong to an application and an owner.

    Methods that take a connection are plain and run inside a transaction body.
    """

    def insert_blob(self, connection: Any, blob: AppBlob) -> int | None:
        """
        Store a row and return its `seq`.

        `None`, and nothing is stored, if its upload has a row already.
        """
        ...

    def remove_blobs(
        self, connection: Any, app: str, owner: Owner, ids: Collection[str]
    ) -> Sequence[str]:
        """Delete the rows that are this owner's; return their ids."""
        ...

    async def find_blob(self, app: str, owner: Owner, blob_id: str) -> AppBlob | None:
        """Return a row of this owner, also one that has expired."""
        ...

    async def find_upload(self, app: str, owner: Owner, upload: str) -> AppBlob | None:
        """Return the row that was confirmed from an upload."""
        ...

    async def list_blobs(
        self, app: str, owner: Owner, *, after: int, limit: int
    ) -> Sequence[AppBlob]:
        """Return rows of this owner with `seq` above `after`, the oldest first."""
        ...

    async def find_blobs(self, ids: Collection[str]) -> Sequence[AppBlob]:
        """Return rows of any owner, for the sweeper and for signed URLs."""
        ...

    async def remove_expired_blobs(self, now: Instant, *, limit: int) -> Sequence[str]:
        """Delete expired rows, durably; return their ids."""
        ...
