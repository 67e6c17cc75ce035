"""Opens batches, issues upload URLs and confirms uploads."""

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from backburner import (
    AppBlob,
    Backburner,
    BackburnerError,
    BlobMismatch,
    BlobMissing,
    BlobTooLarge,
    CallerError,
    Flow,
    Owner,
    SignedUrl,
    Transaction,
)
from backburner.tables import owned_by
from backburner_apps.documents import changes, states
from backburner_apps.documents.batches import owner_of, topic
from backburner_apps.documents.settings import DocumentsSettings
from backburner_apps.documents.shapes import Confirmation, FileRef, NewFile
from backburner_apps.documents.states import PENDING, QUEUED, UNCONFIRMED, UPLOADED
from backburner_apps.documents.tables import Row, batches, files
from backburner_apps.documents.work import chunk, embed, extract

APP: Final = "documents"
OCTETS: Final = "application/octet-stream"
MILLISECOND: Final = timedelta(milliseconds=1)

b, f = batches.c, files.c


class BatchFull(CallerError):
    """The batch accepts no further file."""

    code = "BATCH_FULL"


class NotUploaded(CallerError):
    """The bytes have not arrived."""

    code = "NOT_UPLOADED"


class ContentMismatch(CallerError):
    """The uploaded bytes do not match the announced size or MD5."""

    code = "CONTENT_MISMATCH"


class NotConfirmable(CallerError):
    """The state of the file does not allow this confirmation."""

    code = "NOT_CONFIRMABLE"


class Requested(NamedTuple):
    """A file for which a URL was issued."""

    file_id: str
    url: SignedUrl


def open_batch(tx: Transaction, owner: Owner, batch_id: str, count: int) -> None:
    """Store a new batch."""
    now = tx.now()
    row = {
        "id": batch_id,
        "tenant": owner.tenant,
        "user": owner.user,
        "file_count": count,
        "requested": 0,
        "generation": 0,
        "created_at": now,
        "requested_at": now,
    }
    tx.connection.execute(batches.insert().values(row))


class Uploads:
    """The uploads of all users."""

    def __init__(self, bb: Backburner) -> None:
        self._bb = bb
        self._settings = bb.settings_of(DocumentsSettings)

    async def request(self, owner: Owner, batch_id: str, new: NewFile) -> Requested:
        """Return a URL for one more file of a batch; raises `BatchFull`."""
        span = timedelta(seconds=self._settings.url_seconds)
        url = await self._bb.blobs(APP, owner).upload_url(size=new.file_size, span=span)
        file_id = self._bb.engine.draw("file")
        row = {
            "id": file_id,
            "tenant": owner.tenant,
            "user": owner.user,
            "batch_id": batch_id,
            "name": new.file_name,
            "size": new.file_size,
            "status": PENDING,
            "upload": url.upload,
            "version": 0,
        }
        await self._bb.transact(add_file, owner, row, span // MILLISECOND)
        return Requested(file_id, url)

    async def confirm(
        self, file: Row, said: Confirmation, options: Mapping[str, Any]
    ) -> None:
        """
        Check what was uploaded, keep it, and submit the flow, in one transaction.

        A second call with the same values does nothing. Raises `NotUploaded`,
        `ContentMismatch` and `NotConfirmable`.
        """
        owner = owner_of(file)
        if file.status not in UNCONFIRMED:
            await self._check_repeat(owner, file, said)
            return
        is_ours, problem = False, None

        def queue(tx: Transaction, blob: AppBlob) -> None:
            nonlocal is_ours
            queue_file(tx, file.id, blob, said, options)
            is_ours = True

        try:
            await self._bb.blobs(APP, owner).confirm(
                file.upload,
                content_type=OCTETS,
                size=said.size,
                max_size=self._settings.file_limit,
                md5=said.md5,
                also=queue,
            )
        except (BlobMissing, BlobMismatch, BlobTooLarge) as error:
            problem = error
        if not is_ours:
            await self._explain(owner, file.id, said, problem)

    async def _explain(
        self,
        owner: Owner,
        file_id: str,
        said: Confirmation,
        problem: BackburnerError | None,
    ) -> None:
        """Accept a concurrent confirmation with the same values, or raise an error."""
        file = await self._bb.read(changes.find_own, owner, file_id)
        if file is None:
            raise NotConfirmable("the file was deleted")
        if file.status not in UNCONFIRMED:
            await self._check_repeat(owner, file, said)
            return
        if problem is None or isinstance(problem, BlobMissing):
            raise NotUploaded(
                "the bytes of the file have not arrived: send them to uploadUrl by "
                "PUT, then confirm again"
            )
        await self._bb.transact(_reset, file_id)
        raise ContentMismatch(f"{problem}: upload the file again, then confirm it")

    async def _check_repeat(self, owner: Owner, file: Row, said: Confirmation) -> None:
        """Accept a repeated confirmation with the same values; refuse any other."""
        if file.blob is None:
            raise NotConfirmable(
                f"the file is {file.status}: request another URL and upload it again"
            )
        is_same = file.size == said.size
        if is_same and said.md5 is not None:
            known = file.md5 or await self._md5(owner, file.blob)
            is_same = known == said.md5
        if not is_same:
            raise NotConfirmable(
                f"the file is {file.status}: it was confirmed with another size or md5"
            )

    async def _md5(self, owner: Owner, blob: str) -> str:
        """Compute the MD5 of a content that was confirmed without one."""
        digest = hashlib.md5(usedforsecurity=False)
        async for piece in self._bb.blobs(APP, owner).read(blob):
            digest.update(piece)
        return digest.hexdigest()


def arrived(tx: Transaction, upload: str, _size: int) -> None:
    """Record that the bytes of a file have arrived at its URL."""
    statement = sa.select(files).where(f.upload == upload)
    file = tx.connection.execute(statement).one_or_none()
    if file is not None and file.status == PENDING:
        changes.move(tx, file, UPLOADED)


def flow_of(file_id: str, batch_id: str) -> Flow:
    """Return the three steps of a file's processing."""
    flow, value = Flow(), FileRef(file_id=file_id, batch_id=batch_id)
    before: list[str] = []
    steps: dict[str, Any] = {"extract": extract, "chunk": chunk, "embed": embed}
    for kind, job in steps.items():
        name = states.step_name(kind, file_id)
        flow.add(job, value, after=before, name=name, tags=[name])
        before = [name]
    return flow


def add_file(tx: Transaction, owner: Owner, row: Mapping[str, Any], span: int) -> None:
    """Store the row of one more file of a batch; raises `BatchFull`."""
    now = tx.now()
    # One statement decides: two requests at once cannot both take the last place.
    taken = tx.connection.execute(
        batches.update()
        .where(
            b.id == row["batch_id"],
            owned_by(batches, owner),
            b.closed_at.is_(None),
            b.requested < b.file_count,
        )
        .values(requested=b.requested + 1, requested_at=now)
    )
    if taken.rowcount != 1:
        raise BatchFull("the batch has URLs for all its files, or takes no more files")
    times = {"created_at": now, "updated_at": now, "expires_at": now + span}
    tx.connection.execute(files.insert().values({**row, **times}))


def queue_file(
    tx: Transaction,
    file_id: str,
    blob: AppBlob,
    said: Confirmation,
    options: Mapping[str, Any],
) -> None:
    """Set a confirmed file to `queued` and submit the flow that processes it."""
    file = changes.find(tx, file_id)
    if file is None or file.status not in UNCONFIRMED:
        raise NotConfirmable("the file is not waiting to be confirmed any more")
    tags = [topic(file.batch_id)]
    flow = flow_of(file.id, file.batch_id)
    submitted = tx.submit_flow(flow, **{**options, "owner": blob.owner, "tags": tags})
    values = {
        "blob": blob.id,
        "md5": said.md5,
        "size": blob.size,
        "flow_id": submitted.id,
        "confirmed_at": tx.now(),
    }
    if not changes.update(tx, file, status=QUEUED, **values):
        raise NotConfirmable("the file was changed meanwhile: confirm it again")
    if file.status == PENDING:  # an object store does not report uploads
        changes.publish(tx, file, PENDING, UPLOADED)
    changes.publish(tx, file, UPLOADED, QUEUED)


def _reset(tx: Transaction, file_id: str) -> None:
    """Allow another upload of a file whose bytes did not match."""
    file = changes.find(tx, file_id)
    if file is not None and file.status == UPLOADED:
        changes.move(tx, file, PENDING)
