"""
Blobs owned by an application: contents of any size, each with an owner and a row.

A row is committed after its bytes are durable, and deleted before them. A crash in
between leaves bytes without a row, which the sweeper deletes.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Protocol, TypeVar

from backburner.domain.blobs.app_blob import (
    BLOB,
    OCTETS,
    UPLOAD,
    AppBlob,
    check_app,
    check_label,
    is_kind,
    upload_key,
)
from backburner.domain.blobs.blob import BlobKey
from backburner.domain.errors import (
    BlobMismatch,
    BlobMissing,
    BlobTooLarge,
    StoreUnavailable,
    UploadTooSlow,
)
from backburner.domain.jobs.job import Instant, Owner
from backburner.engine.access.signed_urls import USUAL
from backburner.engine.blobs import streams
from backburner.engine.blobs.streams import Measured, Source
from backburner.engine.blobs.urls import SignedUrl, UrlSigner
from backburner.engine.transaction import Transaction, View
from backburner.ports.blobs import BlobStore, UrlTerms
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults
from backburner.ports.log import log
from backburner.ports.store.app_blobs import AppBlobStore

T = TypeVar("T")

LONGEST_WRITE: Final = timedelta(hours=12)
"""The maximum duration of a write: bytes without a row are deleted after a day."""
LONGEST_PAGE: Final = 1000
MILLISECOND: Final = timedelta(milliseconds=1)

Also = Callable[[Transaction, AppBlob], None]
"""Runs in the transaction that stores a blob's row; if it raises, there is no blob."""


class Transact(Protocol):
    """Runs a function in one transaction."""

    def __call__(self, body: Callable[[Transaction], T]) -> Awaitable[T]:
        """Return what the body returns."""
        ...


@dataclass(frozen=True, slots=True)
class BlobService:
    """The shared part of all applications' blobs."""

    rows: AppBlobStore
    blobs: BlobStore
    transact: Transact
    commit: Transact
    """Stores rows; for a handler, only while it holds its job."""
    clock: Clock
    draw: Callable[[str], str]
    """Draws an id of a kind."""
    limit: int
    """The maximum size of a content in bytes."""
    faults: Faults
    urls: UrlSigner
    uploaded: tuple[Callable[[Transaction, str, int], None], ...] = ()
    """
    Hooks of applications, called when bytes arrive at a signed URL of this server.
    """

    async def note_upload(self, upload: str, size: int) -> None:
        """Notify the applications of an upload, in one transaction."""
        if not self.uploaded:
            return

        def body(tx: Transaction) -> None:
            for hook in self.uploaded:
                hook(tx, upload, size)

        await self.transact(body)

    def of(self, app: str, owner: Owner) -> "AppBlobs":
        """Return the blobs of one application and owner."""
        return AppBlobs(self, check_app(app), owner)

    async def write(
        self, key: BlobKey, source: Source, limit: int | None, *, md5: bool = False
    ) -> Measured:
        """Write a content, within the limits of the caller and the operator."""
        most = self.limit if limit is None else min(limit, self.limit)
        return await streams.write(
            self.blobs, key, source, limit=most, faults=self.faults, md5=md5
        )

    async def signed(self, blob_id: str) -> AppBlob:
        """Return the blob of a signed URL; `BlobMissing` if it no longer exists."""
        found = await self.rows.find_blobs([blob_id])
        return current(found[0] if found else None, self.clock.now())

    async def drop(self, ids: Sequence[str]) -> None:
        """Delete bytes that have no row; failures are left to the sweeper."""
        if not ids:
            return
        try:
            await streams.in_thread(self.blobs.delete, ids)
        except StoreUnavailable as error:
            log.warning("blobs not deleted", count=len(ids), code=error.code)


class AppBlobs:
    """
    The blobs of one application that belong to one owner.

    Blobs of other applications and owners are treated as if they did not exist.
    """

    def __init__(self, service: BlobService, app: str, owner: Owner) -> None:
        self._service = service
        self.app = app
        self.owner = owner

    async def write(
        self,
        source: Source,
        *,
        name: str = "",
        content_type: str = OCTETS,
        max_size: int | None = None,
        keep: timedelta | None = None,
        also: Also | None = None,
    ) -> AppBlob:
        """
        Write a content while it is read from its source; return its row, committed.

        Size and SHA-256 are computed on the way. More than `max_size` bytes raise
        `BlobTooLarge` as soon as they arrive. If this raises, nothing is left.
        After `keep` it is deleted; without it, when `delete` is called.
        `also` writes to the application's own tables in the transaction of the row. A
        caller that is cancelled while that transaction commits keeps both or neither.
        """
        check_label(name, content_type)
        blob = self._new(name, content_type, keep)
        measured = await self._service.write(blob.key, source, max_size)
        stored = await self._commit(blob, measured, also)
        assert stored is not None  # noqa: S101 - only an upload can be there already
        return stored

    async def confirm(  # noqa: PLR0913 - one argument per property
        self,
        upload: str,
        *,
        name: str = "",
        content_type: str = OCTETS,
        size: int | None = None,
        max_size: int | None = None,
        md5: str | None = None,
        sha256: str | None = None,
        keep: timedelta | None = None,
        also: Also | None = None,
    ) -> AppBlob:
        """
        Create a blob from an upload to a signed URL; return its row, committed.

        Raises `BlobMissing` if nothing was uploaded, `BlobTooLarge` or `BlobMismatch`
        if it differs from the arguments: then the client may upload it again. A second
        call returns the same blob and does not call `also` again.
        """
        check_label(name, content_type)
        confirmed = await self._service.rows.find_upload(self.app, self.owner, upload)
        if confirmed is not None:
            return current(confirmed, self._service.clock.now())
        blob = replace(self._new(name, content_type, keep), upload=upload)
        try:
            source = await self._uploaded(upload, size)
            measured = await self._service.write(
                blob.key, source, max_size, md5=md5 is not None
            )
            _check("SHA-256", measured.sha256, sha256)
            _check("MD5", measured.md5, md5)
        except (BlobMismatch, BlobTooLarge):
            await self._service.drop([blob.id, upload])
            raise
        except BlobMissing:
            # Another caller may just have confirmed it and deleted the upload.
            return await self._confirmed(upload)
        stored = await self._commit(blob, measured, also)
        if stored is None:
            # Another process was faster; both read the same bytes.
            return await self.confirm(upload)
        await self._service.drop([upload])
        return stored

    async def _confirmed(self, upload: str) -> AppBlob:
        found = await self._service.rows.find_upload(self.app, self.owner, upload)
        if found is None:
            raise BlobMissing("the blob does not exist")
        return current(found, self._service.clock.now())

    async def upload_url(
        self,
        *,
        size: int | None = None,
        max_size: int | None = None,
        content_type: str | None = None,
        span: timedelta = USUAL,
    ) -> SignedUrl:
        """
        Return a URL for an upload with PUT, without an API key.

        It accepts exactly `size` bytes, or at most `max_size`. Clients upload to S3
        directly only if `size` is known. After `confirm` the upload is a blob.
        """
        if content_type is not None:
            check_label("", content_type)
        most = self._service.limit
        asked = size if size is not None else max_size
        if asked is not None and not 0 <= asked <= most:
            raise BlobTooLarge(f"the size must be 0 to {most} bytes, not {asked}")
        upload = self._service.draw(UPLOAD)
        limit = (most if asked is None else asked) if size is None else None
        terms = UrlTerms(span, size, limit, content_type)
        key = upload_key(upload, self.app, self.owner)
        return await self._service.urls.to_put(key, terms)

    async def download_url(self, blob_id: str, *, span: timedelta = USUAL) -> SignedUrl:
        """Return a URL by which a client reads a blob, without an API key, by GET."""
        return await self._service.urls.to_get(await self.find(blob_id), span)

    async def find(self, blob_id: str) -> AppBlob:
        """Return a blob's row; raises `BlobMissing`."""
        found = await self._service.rows.find_blob(self.app, self.owner, blob_id)
        return current(found, self._service.clock.now())

    async def read(
        self, blob_id: str, *, offset: int = 0, size: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield a content, or `size` bytes of it from `offset`, piece by piece."""
        found = await self.find(blob_id)
        left = max(0, found.size - offset)
        asked = left if size is None else min(size, left)
        blobs = self._service.blobs
        async for piece in streams.read(blobs, found.key, offset=offset, size=asked):
            yield piece

    async def list(self, *, after: int = 0, limit: int = 100) -> Sequence[AppBlob]:
        """Return blobs, the oldest first; `after` is the `seq` of the page's last."""
        return await self._service.rows.list_blobs(
            self.app, self.owner, after=after, limit=min(limit, LONGEST_PAGE)
        )

    async def delete(self, *ids: str) -> Sequence[str]:
        """Delete blobs; return the ids of those that were there."""
        gone = await self._service.transact(lambda tx: self.remove(tx, ids))
        self._service.faults.hit("blobs.removed")
        await self._service.drop(gone)
        return gone

    def remove(self, tx: View, ids: Collection[str]) -> Sequence[str]:
        """
        Delete rows in a transaction of the application.

        The sweeper deletes the bytes after a day, or `delete` does so at once.
        """
        rows = self._service.rows
        return rows.remove_blobs(tx.connection, self.app, self.owner, ids)

    def _new(self, name: str, content_type: str, keep: timedelta | None) -> AppBlob:
        now = self._service.clock.now()
        return AppBlob(
            id=self._service.draw(BLOB),
            app=self.app,
            owner=self.owner,
            name=name,
            content_type=content_type,
            size=0,
            sha256="",
            created_at=now,
            expires_at=None if keep is None else now + keep // MILLISECOND,
        )

    async def _commit(
        self, blob: AppBlob, measured: Measured, also: Also | None
    ) -> AppBlob | None:
        """
        Store the row of a complete content; `None` if its upload already has one.

        A cancelled caller waits for the outcome of the commit, because only that tells
        whether the bytes may be deleted. What `also` wrote stays with its blob.
        """
        service = self._service
        stored = replace(blob, size=measured.size, sha256=measured.sha256)

        def body(tx: Transaction) -> AppBlob | None:
            self._check_age(blob)
            seq = service.rows.insert_blob(tx.connection, stored)
            numbered = None if seq is None else replace(stored, seq=seq)
            if numbered is not None and also is not None:
                also(tx, numbered)
            return numbered

        committing = asyncio.ensure_future(service.commit(body))
        cancelled = await streams.ended(committing)
        is_wanted = cancelled is None or also is not None
        if _is_void(committing, is_wanted=is_wanted):
            await asyncio.shield(self._undo(blob))
        if cancelled is not None:
            raise cancelled
        committed = committing.result()
        service.faults.hit("blobs.committed")
        return committed

    def _check_age(self, blob: AppBlob) -> None:
        """Refuse an upload that is so old that the sweeper may delete it."""
        if self._service.clock.now() - blob.created_at > LONGEST_WRITE // MILLISECOND:
            raise UploadTooSlow("the content took longer than 12 hours to be written")

    async def _undo(self, blob: AppBlob) -> None:
        """Delete the bytes of a write, and its row if there is one."""
        with suppress(StoreUnavailable):
            await self._service.transact(lambda tx: self.remove(tx, [blob.id]))
            await self._service.drop([blob.id])

    async def _uploaded(self, upload: str, size: int | None) -> Source:
        """Return what a client sent; `BlobMissing` if nothing came."""
        service = self._service
        if not is_kind(UPLOAD, upload):
            raise BlobMissing("the upload does not exist")
        key = BlobKey.read(upload_key(upload, self.app, self.owner).id)
        sent = await streams.in_thread(service.blobs.size, key)
        _check("size", str(sent), None if size is None else str(size))
        return streams.read(service.blobs, key, offset=0, size=sent)


def current(found: AppBlob | None, now: Instant) -> AppBlob:
    """Return a blob; `BlobMissing` if there is none or it has expired."""
    if found is None or (found.expires_at is not None and found.expires_at <= now):
        raise BlobMissing("the blob does not exist")
    return found


def _is_void(committing: "asyncio.Future[AppBlob | None]", *, is_wanted: bool) -> bool:
    """Return whether a content must be deleted, given the outcome of its commit."""
    if committing.cancelled():
        return False  # the row may be there: the sweep looks
    error = committing.exception()
    if error is not None:
        return not isinstance(error, StoreUnavailable)  # likewise
    # Without a row, another caller has just confirmed the upload.
    return not is_wanted or committing.result() is None


def _check(name: str, measured: str | None, announced: str | None) -> None:
    if announced is not None and measured != announced.lower():
        raise BlobMismatch(f"the upload's {name} is {measured}, not {announced}")
