"""The settings of `documents`."""

from typing import Final

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

MEGABYTE: Final = 1_000_000


class DocumentsSettings(BaseSettings):
    """How much may be uploaded, how fast it is processed, and how it is cut up."""

    model_config = SettingsConfigDict(env_prefix="BACKBURNER_DOCUMENTS_", frozen=True)

    file_limit: int = Field(100 * MEGABYTE, ge=1, le=5_000 * MEGABYTE)
    """Largest file that may be uploaded, in bytes. Default: 100000000."""
    batch_limit: int = Field(1_000, ge=1, le=10_000)
    """Most files in one batch. Default: 1000."""
    url_seconds: float = Field(3_600.0, ge=0.1, le=86_400)
    """
    Seconds in which a file must be uploaded and confirmed after its URL was requested,
    and after which a batch no longer waits for further requests. Default: 3600.
    """
    dead_letter_days: float = Field(30.0, gt=0, le=365)
    """How many days a dead letter is kept. Default: 30."""

    extract_at_once: int = Field(8, ge=1, le=1_000)
    """Files whose text is extracted at once, on all workers together. Default: 8."""
    chunk_at_once: int = Field(5, ge=1, le=1_000)
    """Files that are split into chunks at once, on all workers together. Default: 5."""
    embed_at_once: int = Field(5, ge=1, le=1_000)
    """Files whose chunks are embedded at once, on all workers together. Default: 5."""
    completion_at_once: int = Field(2, ge=1, le=100)
    """Batches that are completed at once, on all workers together. Default: 2."""
    answers_at_once: int = Field(8, ge=1, le=1_000)
    """Questions that are answered at once, on all workers together. Default: 8."""
    extract_per_minute: int = Field(100, ge=0, le=1_000_000)
    """Files whose extraction starts in a minute; 0: any number. Default: 100."""
    chunk_per_minute: int = Field(50, ge=0, le=1_000_000)
    """Files whose chunking starts in a minute; 0: any number. Default: 50."""
    embed_per_minute: int = Field(50, ge=0, le=1_000_000)
    """Files whose embedding starts in a minute; 0: any number. Default: 50."""

    rate_seconds: float = Field(60.0, ge=0.5, le=3_600)
    """Length of the window, in seconds, in which starts are counted. Default: 60."""
    extract_retry_seconds: float = Field(5.0, ge=0, le=60)
    """Wait after the first failed extraction; it doubles, up to 60 s. Default: 5."""
    chunk_retry_seconds: float = Field(3.0, ge=0, le=60)
    """Wait after the first failed chunking; it doubles, up to 60 s. Default: 3."""
    embed_retry_seconds: float = Field(3.0, ge=0, le=60)
    """Wait after the first failed embedding; it doubles, up to 60 s. Default: 3."""

    extract_memory: int = Field(384 * 1024**2, ge=64 * MEGABYTE)
    """Memory, in bytes, that the extraction of one file may use. Default: 384 MiB."""
    extract_seconds: float = Field(120.0, gt=0, le=3_600)
    """Longest extraction of one file, in seconds. Default: 120."""

    chunk_tokens: int = Field(256, ge=16, le=8_192)
    """Most tokens of one chunk, about 200 words. Default: 256."""
    chunk_overlap: int = Field(32, ge=0, le=4_096)
    """Tokens that a chunk repeats of the one before it. Default: 32."""

    models: str = ""
    """Folder of the offline models. Default: `.cache/backburner/models` at home."""
    light: bool = False
    """Whether the offline model is the small table: fast, and less exact."""
