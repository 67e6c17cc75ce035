"""CVs as files: sent to a signed URL, then named by `user_cv_key`."""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urljoin

from backburner import AppBlob, AppBlobs, BlobMissing, BlobTooLarge
from backburner_apps.features.core.errors import TooLarge, ValidationFailed
from backburner_apps.features.core.limits import MAX_FILE_SIZE, validate_file_size
from backburner_apps.features.core.uploads import UploadRequest, UploadView
from backburner_apps.features.extraction import refusal, text_of
from backburner_extractors import ExtractionError, extract


class BlobFiles:
    """The files of one user; a key is the id of an upload."""

    def __init__(self, blobs: AppBlobs, keep: timedelta) -> None:
        self._blobs = blobs
        self._keep = keep

    async def offer(self, asked: UploadRequest, base_url: str) -> UploadView:
        """Sign a URL for one file; raises `TooLarge`. Nothing is stored yet."""
        validate_file_size(asked.size)
        signed = await self._blobs.upload_url(size=asked.size)
        return UploadView(
            user_cv_key=signed.upload,
            upload_url=urljoin(base_url, signed.url),
            headers=signed.headers,
            expires_at=datetime.fromtimestamp(signed.expires_at / 1000, UTC),
        )

    async def check(self, user_id: str, key: str) -> None:
        """Keep an uploaded file for its job."""
        del user_id  # these are the user's own
        await self._confirmed(key)

    async def read_text(self, user_id: str, key: str) -> str:
        """Return the text of a file."""
        del user_id
        blob = await self._confirmed(key)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cv"
            with path.open("wb") as file:
                async for piece in self._blobs.read(blob.id):
                    file.write(piece)
            try:
                return text_of(await extract(path))
            except ExtractionError as error:
                raise refusal(error) from None

    async def _confirmed(self, key: str) -> AppBlob:
        try:
            return await self._blobs.confirm(
                key, max_size=MAX_FILE_SIZE, keep=self._keep
            )
        except BlobMissing:
            raise ValidationFailed(
                "user_cv_key: no file was sent under this key; PUT it to upload_url"
            ) from None
        except BlobTooLarge as error:
            raise TooLarge(f"user_cv_key: {error}") from None
