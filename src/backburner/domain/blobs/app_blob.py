"""
A content that belongs to an application and to one of its users, not to a job.

Its row is committed after its bytes are complete and deleted before they are, so a
row always names a whole content. The bytes are under an id of their own kind.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Final

from backburner.domain.blobs.blob import BlobKey
from backburner.domain.errors import FieldError, InvalidInput
from backburner.domain.jobs.job import Instant, Owner

BLOB: Final = "blob"
"""The kind of id of a content that has, or is about to have, a row."""
UPLOAD: Final = "upload"
"""The kind of id of what came by a signed URL and was not confirmed yet."""
CONTENT: Final = "content"
OCTETS: Final = "application/octet-stream"
LONGEST_NAME: Final = 255
_APP: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_TOKEN: Final = r"[A-Za-z0-9!#$&^_.+-]{1,100}"  # noqa: S105 - a token of RFC 9110
_TYPE: Final = re.compile(rf"{_TOKEN}/{_TOKEN}(; ?charset={_TOKEN})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class AppBlob:
    """What is known of an application's content."""

    id: str
    app: str
    owner: Owner
    name: str
    """What the application calls it, such as the name of a file; may be empty."""
    content_type: str
    size: int
    sha256: str
    """Of the bytes, in hexadecimal digits."""
    created_at: Instant
    expires_at: Instant | None = None
    """When it is deleted; `None`: when the application deletes it."""
    upload: str | None = None
    """The upload that it was confirmed from, if it came by a signed URL."""
    seq: int = 0
    """Its place in lists; the store gives it."""

    @property
    def key(self) -> BlobKey:
        """Where its bytes are."""
        return BlobKey(self.id, CONTENT)


def upload_key(upload: str, app: str, owner: Owner) -> BlobKey:
    """
    Return where an upload's bytes are before it is confirmed.

    The name follows from application and owner: nobody finds another's upload, even
    by its id.
    """
    said = json.dumps([app, owner.tenant, owner.user])
    return BlobKey(upload, hashlib.sha256(said.encode()).hexdigest()[:32])


def is_kind(kind: str, text: str) -> bool:
    """Say whether an id is of a kind."""
    return text.startswith(f"{kind}_")


def check_app(name: str) -> str:
    """Return the name of an application, if it can own contents."""
    if not _APP.fullmatch(name):
        raise ValueError(f"an application cannot be named {name!r}")
    return name


def check_label(name: str, content_type: str) -> None:
    """Raise `InvalidInput` unless a name and a media type can be kept and sent."""
    wrong: list[FieldError] = []
    if len(name) > LONGEST_NAME or not name.isprintable():
        told = f"must have up to {LONGEST_NAME} printable characters"
        wrong.append(FieldError("name", told))
    if not _TYPE.fullmatch(content_type):
        wrong.append(FieldError("content_type", "must be a type such as text/plain"))
    if wrong:
        raise InvalidInput("the blob is not valid", wrong)
