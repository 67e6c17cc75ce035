"""What is said about a file before and after its upload URL is signed."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from backburner_apps.features.core.records import Timestamp


class UploadRequest(BaseModel):
    """The file that a client wants to send."""

    model_config = ConfigDict(extra="forbid")

    size: int = Field(ge=1)
    """Its size in bytes; the URL takes exactly that many."""


class UploadView(BaseModel):
    """Where to send the file, and what to name in the submit."""

    user_cv_key: str
    method: Literal["PUT"] = "PUT"
    upload_url: str
    headers: dict[str, str]
    """Headers to send with the file."""
    expires_at: Timestamp
