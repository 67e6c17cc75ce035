"""The request for an upload URL, and its answer."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from backburner_apps.features.core.records import Timestamp


class UploadRequest(BaseModel):
    """The file that a client wants to send."""

    model_config = ConfigDict(extra="forbid")

    size: int = Field(ge=1)
    """The size in bytes; the URL accepts exactly this size."""


class UploadView(BaseModel):
    """The URL for the file, and the key to pass when submitting."""

    user_cv_key: str
    method: Literal["PUT"] = "PUT"
    upload_url: str
    headers: dict[str, str]
    """Headers to send with the file."""
    expires_at: Timestamp
