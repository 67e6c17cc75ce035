"""The settings of `documents`."""

from typing import Final, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

MEGABYTE: Final = 1_000_000


class DocumentsSettings(BaseSettings):
    """Limits, retries, retention, and the options of extraction and search."""

    model_config = SettingsConfigDict(env_prefix="BACKBURNER_DOCUMENTS_", frozen=True)

    file_limit: int = Field(100 * MEGABYTE, ge=1, le=5_000 * MEGABYTE)
    """Maximum size of an uploaded file, in bytes. Default: 100000000 (100 MB)."""
    batch_limit: int = Field(1_000, ge=1, le=10_000)
    """Maximum number of files in one batch. Default: 1000."""
    url_seconds: float = Field(3_600.0, ge=0.1, le=86_400)
    """
    Time in which a file must be uploaded and confirmed after its URL was requested, in
    seconds. After the same time a batch no longer waits for further requests. Default:
    3600.
    """
    dead_letter_days: float = Field(30.0, gt=0, le=365)
    """Retention of dead letters of `documents`, in days. Default: 30."""

    extract_at_once: int = Field(8, ge=1, le=1_000)
    """
    Maximum number of files whose text is extracted at the same time, for all workers
    together. Default: 8.
    """
    chunk_at_once: int = Field(5, ge=1, le=1_000)
    """
    Maximum number of files that are split into chunks at the same time, for all workers
    together. Default: 5.
    """
    embed_at_once: int = Field(5, ge=1, le=1_000)
    """
    Maximum number of files whose chunks are embedded at the same time, for all workers
    together. Default: 5.
    """
    completion_at_once: int = Field(2, ge=1, le=100)
    """
    Maximum number of batches that are completed at the same time, for all workers
    together. Default: 2.
    """
    answers_at_once: int = Field(8, ge=1, le=1_000)
    """
    Maximum number of questions that are answered at the same time, for all workers
    together. Default: 8.
    """
    extract_per_minute: int = Field(100, ge=0, le=1_000_000)
    """
    Maximum number of extractions started per window
    (`BACKBURNER_DOCUMENTS_RATE_SECONDS`); 0 means no limit. Default: 100.
    """
    chunk_per_minute: int = Field(50, ge=0, le=1_000_000)
    """
    Maximum number of files per window whose chunking starts; 0 means no limit. Default:
    50.
    """
    embed_per_minute: int = Field(50, ge=0, le=1_000_000)
    """
    Maximum number of files per window whose embedding starts; 0 means no limit.
    Default: 50.
    """

    rate_seconds: float = Field(60.0, ge=0.5, le=3_600)
    """Length of the window in which starts are counted, in seconds. Default: 60."""
    extract_retry_seconds: float = Field(5.0, ge=0, le=60)
    """
    Delay after the first failed extraction, in seconds; it doubles with each failure,
    up to 60. Default: 5.
    """
    chunk_retry_seconds: float = Field(3.0, ge=0, le=60)
    """
    Delay after the first failed chunking, in seconds; it doubles with each failure, up
    to 60. Default: 3.
    """
    embed_retry_seconds: float = Field(3.0, ge=0, le=60)
    """
    Delay after the first failed embedding, in seconds; it doubles with each failure, up
    to 60. Default: 3.
    """

    extract_memory: int = Field(384 * 1024**2, ge=64 * MEGABYTE)
    """
    Maximum memory for the extraction of one file, in bytes. Default: 402653184 (384
    MiB).
    """
    extract_seconds: float = Field(120.0, gt=0, le=3_600)
    """Maximum time for the extraction of one file, in seconds. Default: 120."""

    chunk_tokens: int = Field(256, ge=16, le=8_192)
    """
    Maximum size of a chunk, in tokens; 256 tokens are about 200 words. Default: 256.
    """
    chunk_overlap: int = Field(32, ge=0, le=4_096)
    """Number of tokens that a chunk repeats from the previous one. Default: 32."""

    vector_memory: int = Field(256 * 1024**2, ge=0)
    """
    Maximum memory of each process for the vectors of users who search, in bytes. If the
    vectors of a user do not fit, they are compared in PostgreSQL by pgvector, or slice
    by slice if it is not available. 0 keeps no vectors in memory. Default: 268435456
    (256 MiB).
    """
    pgvector: Literal["auto", "off"] = "auto"
    """
    Whether PostgreSQL compares vectors that do not fit in
    `BACKBURNER_DOCUMENTS_VECTOR_MEMORY`. `auto` means if it has the extension `vector`;
    `off` means never. Default: auto.
    """
    models: str = ""
    """Folder of the offline models. Default: `~/.cache/backburner/models`."""
    light: bool = False
    """
    Whether to use the smaller offline model, which is faster and less accurate.
    Default: False.
    """
