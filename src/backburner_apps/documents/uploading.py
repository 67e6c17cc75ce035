"""Uploads files from the command line, with progress bars on stderr."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from backburner.client import Client, ClientError, Unavailable
from backburner.commands import clean, say, words

UPLOADS: Final = "/api/v2/uploads"
CHUNK: Final = 256 * 1024
SECONDS: Final = 60.0
MOST_BARS: Final = 15
"""With more files, only those in progress have a bar."""
UPLOADED: Final = 30
PERCENT: Final = {
    "pending_upload": 0,
    "uploaded": UPLOADED,
    "queued": 38,
    "extracting": 50,
    "chunking": 68,
    "embedding": 84,
    "ready": 100,
    "failed": 100,
}
"""Progress of a file, by its status."""
ENDED: Final = frozenset({"ready", "failed"})


@dataclass
class Upload:
    """A file to upload, and its result."""

    path: Path
    file_id: str = ""
    status: str = "pending_upload"
    error: str = ""
    task: TaskID | None = None

    @property
    def name(self) -> str:
        """The name under which it is uploaded."""
        return self.path.name

    @property
    def is_failed(self) -> bool:
        """Whether it was not uploaded, or not processed."""
        return bool(self.error) or self.status == "failed"

    def view(self) -> dict[str, Any]:
        """Return it as JSON."""
        body = {"fileId": self.file_id, "fileName": self.name, "status": self.status}
        return body | ({"error": self.error} if self.error else {})


class Uploader:
    """Uploads files as one batch."""

    def __init__(self, client: Client, uploads: list[Upload]) -> None:
        self._client = client
        self.uploads = uploads
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[status]}", markup=False),
        )
        self.bars = Progress(
            *columns, console=words, disable=not words.is_terminal, transient=False
        )
        self._batch = self.bars.add_task(
            f"batch of {len(uploads)}", total=len(uploads), status=""
        )

    def run(self) -> str:
        """Upload all files and return the id of their batch."""
        count = len(self.uploads)
        made = self._client.call("POST", f"{UPLOADS}/batches", {"fileCount": count})
        batch_id = str(made["batchId"])
        for upload in self.uploads:
            self._begin(upload)
            try:
                self._send(batch_id, upload)
            except Unavailable:
                raise
            except ClientError as error:
                self.show(upload, "failed", error=clean(error))
                say(f"{upload.name}: {upload.error}")
        return batch_id

    @property
    def is_over(self) -> bool:
        """Whether every file has ended."""
        return all(each.status in ENDED for each in self.uploads)

    def by_id(self) -> dict[str, Upload]:
        """Return the files that were given an id."""
        return {each.file_id: each for each in self.uploads if each.file_id}

    def show(self, upload: Upload, status: str, *, error: str = "") -> None:
        """Record a file's status and move its bar."""
        upload.status, upload.error = status, error
        if upload.task is not None:
            self.bars.update(upload.task, completed=PERCENT[status], status=status)
            if status in ENDED and len(self.uploads) > MOST_BARS:
                self.bars.update(upload.task, visible=False)
        ended = sum(each.status in ENDED for each in self.uploads)
        self.bars.update(self._batch, completed=ended)

    def note(self, text: str) -> None:
        """Show a notice beside the batch's bar."""
        self.bars.update(self._batch, status=text)
        if not words.is_terminal:
            say(text)

    def _begin(self, upload: Upload) -> None:
        upload.task = self.bars.add_task(clean(upload.name), total=100, status="")

    def _send(self, batch_id: str, upload: Upload) -> None:
        size = upload.path.stat().st_size
        batch = f"{UPLOADS}/batches/{batch_id}"
        asked = {"fileName": upload.name, "fileSize": size}
        signed = self._client.call("POST", f"{batch}/upload-urls", asked)
        upload.file_id = signed["fileId"]
        self._put(upload, signed, size)
        path = f"{batch}/files/{upload.file_id}/confirm"
        self.show(upload, self._client.call("POST", path, {"size": size})["status"])

    def _put(self, upload: Upload, signed: dict[str, Any], size: int) -> None:
        import httpx2  # noqa: PLC0415 - for this command only

        # Signed URLs may point to another server, so no API key is sent to them.
        response = httpx2.put(
            urljoin(self._client.url, signed["uploadUrl"]),
            content=self._pieces(upload, size),
            headers={**signed.get("headers", {}), "Content-Length": str(size)},
            timeout=SECONDS,
            follow_redirects=False,
        )
        if not response.is_success:
            raise ClientError(
                f"the upload was refused with status {response.status_code}",
                code="UPLOAD_REFUSED",
                status=response.status_code,
            )

    def _pieces(self, upload: Upload, size: int) -> Iterator[bytes]:
        sent = 0
        with upload.path.open("rb") as file:
            while piece := file.read(CHUNK):
                yield piece
                sent += len(piece)
                if upload.task is not None:
                    done = UPLOADED * sent / max(size, 1)
                    self.bars.update(upload.task, completed=done, status="uploading")


def watch_batch(client: Client, batch_id: str, uploader: Uploader) -> None:
    """
    Move the bars by the events of a batch, until it is completed.

    A batch with a file that could not be uploaded stays open for an hour: then the
    end of the other files is enough.
    """
    files = uploader.by_id()
    is_short = any(each.is_failed for each in uploader.uploads)
    if is_short and uploader.is_over:
        return
    for event in client.all_events(after=0, topic=f"batch:{batch_id}"):
        _take(event["type"], event["data"], files, uploader)
        if event["type"] == "batch:completed" or (is_short and uploader.is_over):
            return


def _take(kind: str, data: Any, files: dict[str, Upload], uploader: Uploader) -> None:
    upload = files.get(data.get("fileId", ""))
    if kind == "file:status-changed" and upload is not None:
        uploader.show(upload, data["to"], error=clean(data.get("error") or ""))
    elif kind == "file:processing-stalled" and upload is not None:
        count = data["retryCount"]
        uploader.note(f"{upload.name}: File processing stalled (retry {count}/3)")
    elif kind == "batch:completed":
        ready, total = data["summary"]["ready"], data["summary"]["total"]
        uploader.note(f"Batch completed: {ready}/{total} files processed")
