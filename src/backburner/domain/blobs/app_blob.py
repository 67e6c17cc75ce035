"""
Blobs that belong to an application and one of its users rather than to a job.

A row is committed after its bytes are complete and deleted before them, so a row always
refers to complete bytes. The ids of these blobs have prefixes of their own.
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
"""The prefix of the id of a blob that has, or is about to have, a row."""
UPLOAD: Final = "upload"
"""The prefix of the id of an upload by signed URL that is not confirmed yet."""
CONTENT: Final = "content"
OCTETS: Final = "application/octet-stream"
LONGEST_NAME: Final = 255
_APP: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_TOKEN: Final = r"[A-Za-z0-9!#$&^_.+-]{1,100}"  # noqa: S105 - a token of RFC 9110
_TYPE: Final = re.compile(rf"{_TOKEN}/{_TOKEN}(; ?charset={_TOKEN})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class AppBlob:
    """The metadata of an application's blob."""

    id: str
    app: str
    owner: Owner
    name: str
    """A name given by the application, such as a file name; may be empty."""
    content_type: str
    size: int
    sha256: str
    """SHA-256 of the bytes, in hexadecimal."""
    created_at: Instant
    expires_at: Instant | None = None
    """When it is deleted automatically; `None` if only the application deletes it."""
    upload: str | None = None
    """The upload that the blob was confirmed from, if it came by a signed URL."""
    seq: int = 0
    """Its position in lists, assigned by the store."""

    @property
    def key(self) -> BlobKey:
        """The key of its bytes."""
        return BlobKey(self.id, CONTENT)


def upload_key(upload: str, app: str, owner: Owner) -> BlobKey:
    """
    Return the key of an upload's bytes before it is confirmed.

    The name is derived from the application and the owner, so that nobody else can
    address the upload, even with its id.
    """
    identity = json.dumps([app, owner.tenant, owner.user])
    return BlobKey(upload, hashlib.sha256(identity.encode()).hexdigest()[:32])


def is_kind(kind: str, text: str) -> bool:
    """Return whether an id has this prefix."""
    return text.startswith(f"{kind}_")


def check_app(name: str) -> str:
    """Return an application's name; `ValueError` if it cannot own blobs."""
    if not _APP.fullmatch(name):
        raise ValueError(f"an application cannot be named {name!r}")
    return name


def check_label(name: str, content_type: str) -> None:
    """Raise `InvalidInput` unless a name and a media type can be stored and sent."""
    wrong: list[FieldError] = []
    if len(name) > LONGEST_NAME or not name.isprintable():
        message = f"must have up to {LONGEST_NAME} printable characters"
        wrong.append(FieldError("name", message))
    if not _TYPE.fullmatch(content_type):
        wrong.append(FieldError("content_type", "must be a type such as text/plain"))
    if wrong:
        raise InvalidInput("the blob is not valid", wrong)
