"""CVs that users have uploaded to the bucket, and their text."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from uuid import uuid4

from backburner_apps.features.aws.bucket import UPLOADS, Bucket
from backburner_apps.features.core.errors import ValidationFailed
from backburner_apps.features.core.limits import validate_file_size

_KEY: Final = re.compile(re.escape(UPLOADS) + r"(?P<user>[^/]+)/[0-9a-f-]{36}")


def new_key(user_id: str) -> str:
    """Return a key for an upload, which only its user can use."""
    return f"{UPLOADS}{user_id}/{uuid4()}"


class S3Files:
    """Reads a user's uploads; those of other users are treated as missing."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def check(self, user_id: str, key: str) -> None:
        found = _KEY.fullmatch(key)
        is_theirs = found is not None and found["user"] == user_id
        size = self._bucket.size(key) if is_theirs else None
        if size is None:
            raise ValidationFailed("user_cv_key: no such upload")
        validate_file_size(size)

    async def read_text(self, user_id: str, key: str) -> str:
        await self.check(user_id, key)
        return _text_of(self._bucket.read(key))


def _text_of(content: bytes) -> str:
    """Return the text of a document; the function is its own sandbox."""
    # Only the worker reads documents, and the libraries take long to import.
    from backburner_apps.features.extraction import refusal, text_of  # noqa: PLC0415
    from backburner_extractors import ExtractionError, extract_here  # noqa: PLC0415

    with TemporaryDirectory() as folder:
        path = Path(folder) / "cv"
        path.write_bytes(content)
        try:
            return text_of(extract_here(path))
        except ExtractionError as error:
            raise refusal(error) from None
