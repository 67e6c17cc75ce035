"""
Blobs: contents that are stored outside their row, and the references to them.

A blob belongs to a job and is deleted with it. A row holds a reference in place of a
large input or output. A reference begins with `@`, so it is never valid JSON.
"""

import re
from typing import Final, NamedTuple, Self
from urllib.parse import quote

from backburner.domain.errors import BlobMissing

MARK: Final = "@blob:"
LARGE: Final = 64 * 1024
"""The largest input or output, in bytes, that is stored in the row itself."""

_WIDEST = 4
"""The maximum length of a character in UTF-8, in bytes."""
_ID = re.compile(r"([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{1,64})", re.ASCII)


class BlobKey(NamedTuple):
    """Identifies one blob of a job."""

    job: str
    name: str

    @property
    def id(self) -> str:
        """The key as one string, for users."""
        return f"{self.job}.{self.name}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse an id; raise `BlobMissing` if it is malformed."""
        match = _ID.fullmatch(text)
        if match is None:
            raise BlobMissing("the blob does not exist")
        return cls(match[1], match[2])


class Reference(NamedTuple):
    """What a row holds in place of a large text."""

    key: BlobKey
    size: int

    def __str__(self) -> str:
        return f"{MARK}{self.key.id}:{self.size}"


def reference(text: str | None) -> Reference | None:
    """Parse a stored text as a reference; `None` if it is the content itself."""
    if text is None or not text.startswith(MARK):
        return None
    blob_id, _, size = text.removeprefix(MARK).partition(":")
    return Reference(BlobKey.read(blob_id), int(size))


def attachment(name: str) -> str:
    """Return a `Content-Disposition` that makes browsers download a file."""
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"


def is_large(text: str) -> bool:
    """Return whether a text is stored as a blob; for small texts, one comparison."""
    return len(text) > LARGE // _WIDEST and len(text.encode()) > LARGE
