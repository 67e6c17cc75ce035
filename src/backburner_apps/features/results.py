"""Results: blobs of the application, and signed URLs to fetch them."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

import sqlalchemy as sa

from backburner import AppBlob, AppBlobs, BlobMissing, Transaction, View
from backburner_apps.features.core.records import JobRecord
from backburner_apps.features.tables import results

T = TypeVar("T")

URL_SPAN: Final = timedelta(hours=1)
"""How long a URL of a result works. A result is kept that much longer than its record:
a URL that was signed at the last moment works as long as any other."""
JSON: Final = "application/json"


class Read(Protocol):
    """Runs a plain function on committed data, like `Backburner.read`."""

    def __call__(self, body: Callable[[View], T]) -> Awaitable[T]:
        """Return what the body returns."""
        ...


class BlobResults:
    """The results of one user, at most one per job."""

    def __init__(self, blobs: AppBlobs, read: Read, keep: timedelta) -> None:
        self._blobs = blobs
        self._read = read
        self._keep = keep + URL_SPAN

    async def find(self, record: JobRecord) -> str | None:
        """Return the id of the job's result, or `None`."""
        blob_id = await self._read(lambda view: _blob_of(view, record.job_id))
        if blob_id is None:
            return None
        try:
            return (await self._blobs.find(blob_id)).id
        except BlobMissing:
            return None

    async def write(self, record: JobRecord, content: bytes) -> str:
        """Store the result and the row that names it, in one transaction."""

        def name(tx: Transaction, blob: AppBlob) -> None:
            key = results.c.job_id == record.job_id
            tx.connection.execute(results.delete().where(key))
            tx.connection.execute(results.insert().values(self._row(record, blob)))

        blob = await self._blobs.write(
            content,
            name=f"{record.feature}.json",
            content_type=JSON,
            keep=self._keep,
            also=name,
        )
        return blob.id

    async def sign(self, record: JobRecord) -> str | None:
        """Return a URL that works for an hour; `None` if the result is gone."""
        blob_id = await self._read(lambda view: _blob_of(view, record.job_id))
        try:
            if blob_id is not None:
                return (await self._blobs.download_url(blob_id, span=URL_SPAN)).url
        except BlobMissing:
            pass
        return None

    def _row(self, record: JobRecord, blob: AppBlob) -> dict[str, Any]:
        owner = self._blobs.owner
        return {
            "job_id": record.job_id,
            "tenant": owner.tenant,
            "user": owner.user,
            "blob_id": blob.id,
            "expires_at": blob.expires_at,
        }


def delete_expired(tx: Transaction, limit: int) -> int:
    """Delete rows whose blobs have expired; return how many."""
    old = sa.select(results.c.job_id).where(results.c.expires_at <= tx.now())
    gone = results.delete().where(results.c.job_id.in_(old.limit(limit)))
    return int(tx.connection.execute(gone).rowcount)


def _blob_of(view: View, job_id: str) -> str | None:
    query = sa.select(results.c.blob_id).where(results.c.job_id == job_id)
    found: str | None = view.connection.execute(query).scalar()
    return found
