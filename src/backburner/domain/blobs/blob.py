"""
Contents that are stored outside their row, and the references to them.

A blob belongs to a job and goes with it. Where the row would hold a large input or
output it holds a reference, which no JSON text can be mistaken for: none begins so.
"""

import re
from typing import Final, NamedTuple, Self
from urllib.parse import quote

from backburner.domain.errors import BlobMissing

MARK: Final = "@blob:"
LARGE: Final = 64 * 1024
"""The most bytes of an input or output that are kept in the row itself."""

_WIDEST = 4
"""The most bytes that a character takes."""
_ID = re.compile(r"([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{1,64})", re.ASCII)


class BlobKey(NamedTuple):
    """Which of a job's blobs."""

    job: str
    name: str

    @property
    def id(self) -> str:
        """The key as one word, for users."""
        return f"{self.job}.{self.name}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Read an id; anything else names no blob."""
        found = _ID.fullmatch(text)
        if found is None:
            raise BlobMissing("the blob does not exist")
        return cls(found[1], found[2])


class Reference(NamedTuple):
    """What a row holds instead of a large text."""

    key: BlobKey
    size: int

    def __str__(self) -> str:
        return f"{MARK}{self.key.id}:{self.size}"


def reference(text: str | None) -> Reference | None:
    """Return what a stored text refers to; `None` if it is the text itself."""
    if text is None or not text.startswith(MARK):
        return None
    blob_id, _, size = text.removeprefix(MARK).partition(":")
    return Reference(BlobKey.read(blob_id), int(size))


def attachment(name: str) -> str:
    """Return the `Content-Disposition` by which a browser saves a content."""
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"


def is_large(text: str) -> bool:
    """Say whether a text is to be kept apart; for small ones this is one comparison."""
    return len(text) > LARGE // _WIDEST and len(text.encode()) > LARGE
