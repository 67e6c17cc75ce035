"""
Blobs in a folder: a folder per job, spread over others by the end of its id.

Names are the engine's own and are checked besides; every folder on the way is opened
by its descriptor and never through a link, so no name leads out of the folder.
"""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from backburner.domain.blobs.blob import BlobKey
from backburner.domain.errors import (
    BlobMissing,
    ConfigurationError,
    StoreFull,
    StoreUnavailable,
)
from backburner.domain.jobs.job import Instant
from backburner.ports.blobs import BlobWriter, DirectUrl, UrlTerms
from backburner.ports.clock import Dice
from backburner.ports.faults import Faults
from backburner.ports.finding import Finding, Status, room

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ABSENT: Final = frozenset({errno.ENOENT, errno.ELOOP, errno.ENOTDIR})
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileBlobs:
    """A `BlobStore` for `file:///` URLs: a local folder, or one that hosts share."""

    read_size = 1024 * 1024

    def __init__(self, root: Path, dice: Dice, faults: Faults) -> None:
        self.root = root
        self._dice = dice
        self._faults = faults
        self._is_rooted = False
        """Whether this process has seen to it that the root outlives the machine."""

    @classmethod
    def from_url(cls, url: str, dice: Dice, faults: Faults) -> Self:
        """Take `file:///absolute`."""
        parts = urlsplit(url)
        path = Path(unquote(parts.path))
        if parts.netloc or not path.is_absolute() or path == Path("/"):
            raise ConfigurationError(
                f"BACKBURNER_BLOBS={url!r} names no folder: write file:///var/blobs"
            )
        if path.exists() and not (path.is_dir() and os.access(path, os.W_OK)):
            raise ConfigurationError(
                f"BACKBURNER_BLOBS: {path} is no folder that can be written"
            )
        return cls(path, dice, faults)

    def put(self, blobs: Sequence[tuple[BlobKey, bytes]]) -> None:
        for key, content in blobs:
            writer = self.writer(key)
            try:
                writer.write(content)
                writer.finish()
            except BaseException:
                writer.abort()
                raise
        self._faults.hit("blobs.put")

    def writer(self, key: BlobKey) -> BlobWriter:
        job, name = _checked(key)
        part = f".{name}.{self._dice.token()}"
        with ExitStack() as stack, _translated(absent=None):
            folder = stack.enter_context(self._folder(job, create=True))
            descriptor = os.open(part, _NEW, 0o600, dir_fd=folder)
            stack.callback(os.close, descriptor)
            place = _Place(self.root, job, folder)
            return _Part(place, (part, name), descriptor, stack.pop_all(), self._faults)

    def read(self, key: BlobKey, *, offset: int = 0, size: int = -1) -> bytes:
        with _translated(), self._folder(_checked(key).job) as folder:
            descriptor = os.open(key.name, _OLD, dir_fd=folder)
            with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise BlobMissing(f"blob {key.id} is no file")
                file.seek(offset)
                return file.read(size)

    def size(self, key: BlobKey) -> int:
        with _translated(), self._folder(_checked(key).job) as folder:
            found = os.stat(key.name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise BlobMissing(f"blob {key.id} is no file")
        return found.st_size

    def names(self, job: str) -> Sequence[str]:
        with suppress(BlobMissing), _translated():
            with self._folder(_checked(BlobKey(job, "all")).job) as folder:
                found = os.listdir(folder)  # noqa: PTH208 - by its descriptor
            # What is being written begins with a dot.
            return sorted(name for name in found if not name.startswith("."))
        return []

    def delete(self, jobs: Sequence[str]) -> None:
        for job in jobs:
            with suppress(BlobMissing), _translated():
                self._delete(_checked(BlobKey(job, "all")).job)

    def jobs(self, *, before: Instant, after: str | None, limit: int) -> Sequence[str]:
        found: list[str] = []
        with suppress(BlobMissing), _translated():
            for shard in sorted(os.listdir(self.root)):  # noqa: PTH208 - names only
                is_ours = len(shard) == len(_shard("any"))
                if is_ours and (after is None or shard >= _shard(after)):
                    found += self._old(shard, before, after)
                if len(found) >= limit:
                    break
        return found[:limit]

    def discard_unfinished(self, *, before: Instant) -> int:
        """Return 0: unfinished writes are in their job's folder and go with it."""
        del before
        return 0

    def sign(
        self, method: Literal["GET", "PUT"], key: BlobKey, terms: UrlTerms
    ) -> DirectUrl | None:
        """Return `None`: clients do not reach a folder."""
        del method, key, terms
        return None

    def examine(self) -> Sequence[Finding]:
        places = (self.root, *self.root.parents)
        folder = next(place for place in places if place.exists())
        try:
            with tempfile.TemporaryFile(dir=folder):
                return [room("blobs", shutil.disk_usage(folder).free)]
        except OSError as error:
            message = f"{folder} cannot be written: {error.strerror}"
            fix = "name another folder in BACKBURNER_BLOBS, or grant the right to write"
            return [Finding(Status.FAIL, "blobs", message, fix)]

    def _old(self, shard: str, before: Instant, after: str | None) -> list[str]:
        old: list[str] = []
        with suppress(NotADirectoryError), os.scandir(self.root / shard) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # others delete, too
                    changed_at = entry.stat(follow_symlinks=False).st_mtime_ns
                    old += [entry.name] if changed_at < before * 1_000_000 else []
        is_begun = after is not None and shard == _shard(after)
        return sorted(job for job in old if not is_begun or job > (after or ""))

    def _delete(self, job: str) -> None:
        with self._folder(job) as folder:
            for name in os.listdir(folder):  # noqa: PTH208 - by its descriptor
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
        with _opened(self.root) as root, _opened(_shard(job), root) as shard:
            os.rmdir(job, dir_fd=shard)

    @contextmanager
    def _folder(self, job: str, *, create: bool = False) -> Iterator[int]:
        if create and not (self._is_rooted and self.root.exists()):
            _make_root(self.root)
            self._is_rooted = True
        with _opened(self.root) as root:
            if create:
                _make(_shard(job), root)
            with _opened(_shard(job), root) as shard:
                if create:
                    _make(job, shard)
                with _opened(job, shard) as folder:
                    yield folder


class _Place(NamedTuple):
    """Where a content is being written."""

    root: Path
    job: str
    folder: int
    """The descriptor of the job's folder."""


class _Part:
    """A content on its way: a file whose name begins with a dot until it is whole."""

    def __init__(
        self,
        place: _Place,
        names: tuple[str, str],
        descriptor: int,
        stack: ExitStack,
        faults: Faults,
    ) -> None:
        """Take the part's name and the content's, and what to close at the end."""
        self._place = place
        self._part, self._name = names
        self._descriptor = descriptor
        self._stack = stack
        self._faults = faults
        self._is_open = True

    def write(self, piece: bytes) -> None:
        left = memoryview(piece)
        with _translated(absent=None):
            while left:
                left = left[os.write(self._descriptor, left) :]

    def finish(self) -> None:
        folder = self._place.folder
        with _translated(absent=None):
            os.fsync(self._descriptor)
            self._faults.hit("blobs.written")
            os.rename(self._part, self._name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        self._is_open = False
        self._stack.close()

    def abort(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        root, job, folder = self._place
        with self._stack, suppress(OSError):
            os.unlink(self._part, dir_fd=folder)
            with _opened(root) as above, _opened(_shard(job), above) as shard:
                os.rmdir(job, dir_fd=shard)  # fails, as it should, if there is more


def _shard(job: str) -> str:
    return job[-2:]


def _checked(key: BlobKey) -> BlobKey:
    return BlobKey.read(key.id)


def _make_root(root: Path) -> None:
    """Make the root and what is above it, as `_make` does."""
    above = [place for place in root.parents if not place.exists()]
    for place in (*reversed(above), root):
        place.mkdir(mode=0o700, exist_ok=True)
        # Also if it was there: whoever made it may not have come this far.
        with suppress(PermissionError), _opened(place.parent) as parent:
            os.fsync(parent)


def _make(name: str, parent: int) -> None:
    """Make a folder that is still there after the machine was cut off."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        os.fsync(parent)


@contextmanager
def _opened(name: str | Path, parent: int | None = None) -> Iterator[int]:
    # The root alone may be a link: it is the operator's word, not a name of ours.
    flags = _FOLDER if parent is not None else _FOLDER & ~os.O_NOFOLLOW
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _translated(*, absent: str | None = "the blob does not exist") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        told = f"the blob folder: {error.strerror}"
        if error.errno in _FULL:
            raise StoreFull(told) from error
        if error.errno in _ABSENT and absent is not None:
            raise BlobMissing(absent) from error
        raise StoreUnavailable(told) from error
