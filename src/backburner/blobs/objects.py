"""
Blobs in an object store, through `obstore`: one object per content, `PREFIX/JOB/NAME`.

The differences between the clouds are in `s3.py` and `clouds.py`.
"""

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from backburner.domain.blobs.blob import BlobKey
from backburner.domain.errors import BlobMissing, ConfigurationError, StoreUnavailable
from backburner.domain.jobs.job import Instant
from backburner.ports.blobs import BlobWriter, DirectUrl, UrlTerms
from backburner.ports.finding import Finding, Status

PART: Final = 5 * 1024 * 1024
"""
The size of a part of a large upload: S3's minimum, to use little memory.

S3 accepts 10,000 parts, so a content may have up to 50 GB there.
"""
AT_ONCE: Final = 2
"""How many parts of one upload are sent concurrently."""
LISTED: Final = 1000
CLIENT: Final = {
    "connect_timeout": timedelta(seconds=5),
    "timeout": timedelta(seconds=60),
}
RETRY: Final = {"max_retries": 3, "retry_timeout": timedelta(seconds=60)}


class Address(NamedTuple):
    """The parts of an object store's URL."""

    bucket: str
    prefix: str
    """Empty, or ending with a slash."""
    options: Mapping[str, str]
    key: str | None = None
    secret: str | None = None

    @classmethod
    def read(cls, url: str, options: frozenset[str]) -> Self:
        """Parse `scheme://[key:secret@]bucket/prefix?option=…`."""
        parts = urlsplit(url)
        options_ = dict(parse_qsl(parts.query, keep_blank_values=True))
        place = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
        if unknown := options_.keys() - options:
            raise ConfigurationError(
                f"BACKBURNER_BLOBS={place}: unknown option {min(unknown)!r}; "
                f"the options are: {', '.join(sorted(options))}"
            )
        if not parts.hostname:
            raise ConfigurationError(
                f"BACKBURNER_BLOBS={place} names no bucket: use a URL such as "
                f"{parts.scheme}://bucket/prefix"
            )
        prefix = unquote(parts.path).strip("/")
        if any(part in {"", ".", ".."} for part in prefix.split("/") if prefix):
            raise ConfigurationError(
                f"BACKBURNER_BLOBS={place}: the prefix has an empty part, `.` or `..`"
            )
        return cls(
            bucket=parts.hostname,
            prefix=f"{prefix}/" if prefix else "",
            options=options_,
            key=unquote(parts.username) if parts.username else None,
            secret=unquote(parts.password) if parts.password else None,
        )


class ObjectBlobs:
    """A `BlobStore` over any store of `obstore`."""

    read_size = PART

    def __init__(self, store: ObjectStore, prefix: str, place: str) -> None:
        """`place` is its name in messages; `prefix` is empty or ends with a slash."""
        self._store = store
        self._prefix = prefix
        self._place = place

    def put(self, blobs: Sequence[tuple[BlobKey, bytes]]) -> None:
        for key, content in blobs:
            with self._translated():
                obstore.put(self._store, self._path(key), content, use_multipart=False)

    def writer(self, key: BlobKey) -> BlobWriter:
        return _Upload(self, self._store, self._path(key))

    def read(self, key: BlobKey, *, offset: int = 0, size: int = -1) -> bytes:
        path = self._path(key)
        if offset == 0 and size < 0:
            with self._translated(key):
                return bytes(obstore.get(self._store, path).bytes())
        length = self.size(key) - offset if size < 0 else size
        if length <= 0:
            return b""
        try:
            with self._translated(key):
                return bytes(
                    obstore.get_range(self._store, path, start=offset, length=length)
                )
        except StoreUnavailable:
            # Some services refuse a range that begins at the end.
            if self.size(key) > offset:
                raise
            return b""

    def size(self, key: BlobKey) -> int:
        with self._translated(key):
            return obstore.head(self._store, self._path(key))["size"]

    def names(self, job: str) -> Sequence[str]:
        checked = BlobKey.read(f"{job}.all").job
        prefix = f"{self._prefix}{checked}"
        with self._translated():
            listed = obstore.list(self._store, prefix, chunk_size=LISTED).collect()
        return sorted(entry["path"].removeprefix(f"{prefix}/") for entry in listed)

    def delete(self, jobs: Sequence[str]) -> None:
        paths = [
            self._path(BlobKey(job, name)) for job in jobs for name in self.names(job)
        ]
        if paths:
            with self._translated():
                obstore.delete(self._store, paths)

    def jobs(self, *, before: Instant, after: str | None, limit: int) -> Sequence[str]:
        old: list[str] = []
        for job, changed_at in self._changes(after):
            if changed_at < before:
                old.append(job)
            if len(old) == limit:
                break
        return old

    def discard_unfinished(self, *, before: Instant) -> int:
        """Return 0: `obstore` lists no unfinished uploads; the cloud expires them."""
        del before
        return 0

    def sign(
        self, method: Literal["GET", "PUT"], key: BlobKey, terms: UrlTerms
    ) -> DirectUrl | None:
        """Return `None`; subclasses whose cloud signs URLs override this."""
        del method, key, terms
        return None

    def examine(self) -> Sequence[Finding]:
        try:
            next(iter(self._entries(None)), None)
        except StoreUnavailable as error:
            fix = (
                "check the bucket, its permissions and the credentials of this process"
            )
            return [Finding(Status.FAIL, "blobs", str(error), fix)]
        return [Finding(Status.PASS, "blobs", f"{self._place} is reachable")]

    def _path(self, key: BlobKey) -> str:
        job, name = BlobKey.read(key.id)
        return f"{self._prefix}{job}/{name}"

    def _changes(self, after: str | None) -> Iterator[tuple[str, Instant]]:
        """Yield each job with the time of its last change, in the order of the keys."""
        current, latest = "", 0
        for path, changed_at in self._entries(after):
            job = path.partition("/")[0]
            if job != current:
                if current:
                    yield current, latest
                current, latest = job, 0
            latest = max(latest, changed_at)
        if current:
            yield current, latest

    def _entries(self, after: str | None) -> Iterator[tuple[str, Instant]]:
        # "0" is the character after "/", so this skips exactly the objects of that job.
        offset = None if after is None else f"{self._prefix}{after}0"
        prefix = self._prefix.rstrip("/") or None
        with self._translated():
            pages = obstore.list(self._store, prefix, offset=offset, chunk_size=LISTED)
            for page in pages:
                for entry in page:
                    changed_at = int(entry["last_modified"].timestamp() * 1000)
                    yield entry["path"].removeprefix(self._prefix), changed_at

    @contextmanager
    def _translated(self, key: BlobKey | None = None) -> Iterator[None]:
        """Convert errors, without their messages, which may contain secrets."""
        try:
            yield
        except FileNotFoundError as error:
            if key is not None:
                raise BlobMissing(f"there is no blob {key.id}") from error
            raise StoreUnavailable(f"{self._place} does not exist") from error
        except (BaseError, OSError) as error:
            kind = type(error).__name__.removesuffix("Error")
            raise StoreUnavailable(f"{self._place} failed: {kind}") from error


class _Aborted(Exception):
    """Ends an upload that is to be discarded."""


class _Upload:
    """
    Uploads a content: a small one by one request, a large one in parts.

    A thread sends the parts, which `obstore` reads from an iterator. If the iterator
    fails, `obstore` aborts the upload at the service.
    """

    def __init__(self, blobs: ObjectBlobs, store: ObjectStore, path: str) -> None:
        self._blobs = blobs
        self._store = store
        self._path = path
        self._first: list[bytes] = []
        self._size = 0
        self._pieces: queue.Queue[bytes | None] = queue.Queue(maxsize=1)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._is_complete = False
        """Whether the end of the content was reached."""
        self._is_aborted = self._is_over = False

    def write(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._thread is not None:
            self._push(piece)
            return
        self._first.append(bytes(piece))
        if self._size > PART:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
            first, self._first = self._first, []
            for held in first:
                self._push(held)

    def finish(self) -> None:
        if self._thread is None:
            with self._blobs._translated():  # noqa: SLF001 - one adapter
                content = b"".join(self._first)
                obstore.put(self._store, self._path, content, use_multipart=False)
        else:
            self._push(None)
            self._thread.join()
            self._check()
        self._is_over = True

    def abort(self) -> None:
        if self._is_over:
            return
        self._is_over = self._is_aborted = True
        if self._thread is not None:
            self._pieces.put(None)
            self._thread.join()

    def _push(self, piece: bytes | None) -> None:
        self._check()
        self._pieces.put(piece)

    def _check(self) -> None:
        if self._error is not None:
            with self._blobs._translated():  # noqa: SLF001 - one adapter
                raise self._error

    def _run(self) -> None:
        try:
            obstore.put(
                self._store,
                self._path,
                self._remaining(),
                use_multipart=True,
                chunk_size=PART,
                max_concurrency=AT_ONCE,
            )
        except BaseException as error:  # noqa: BLE001 - raised in the writing thread
            self._error = error
        # Take the remaining pieces, so that the writing thread does not wait for ever.
        while not self._is_complete:
            self._take()

    def _remaining(self) -> Iterator[bytes]:
        while (piece := self._take()) is not None:
            yield piece
        if self._is_aborted:
            raise _Aborted

    def _take(self) -> bytes | None:
        piece = self._pieces.get()
        self._is_complete = piece is None
        return piece


def client_options(endpoint: str | None) -> dict[str, Any]:
    """Return the options of a client; plain http only if the endpoint uses it."""
    is_plain = endpoint is not None and endpoint.startswith("http://")
    return {**CLIENT, "allow_http": is_plain}
