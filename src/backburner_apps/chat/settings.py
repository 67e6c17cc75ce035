"""The settings of `chat`."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from backburner_apps.chat.discord.settings import DiscordSettings


class ChatSettings(DiscordSettings):
    """Limits, waits, retention and memories of `chat`."""

    model_config = SettingsConfigDict(
        env_prefix="BACKBURNER_CHAT_", frozen=True, populate_by_name=True
    )

    duplicate_seconds: float = Field(5.0, ge=0, le=3600)
    """
    Time during which a repeated identical request to `chat` is refused as a duplicate,
    in seconds. Default: 5.
    """
    wait_seconds: int = Field(600, ge=1, le=600)
    """
    Maximum time that `POST /ai/generate` waits for the reply, in seconds. Default: 600.
    """
    keep_hours: float = Field(24.0, ge=0.25, le=8760)
    """
    How long a reply can be fetched again by its `requestId`, in hours. Default: 24.
    """
    lock_seconds: float = Field(1200.0, gt=0, le=1200)
    """
    Maximum run time of one `chat` job, in seconds; a job that runs longer fails.
    Default: 1200.
    """
    user_requests: int = Field(60, ge=0, le=1_000_000)
    """
    Rate limit of one user of `chat`, in requests per minute; 0 means no limit. Default:
    60.
    """
    memories: int = Field(5, ge=0, le=50)
    """
    Number of similar memories that are included in the prompt; 0 means none. Default:
    5.
    """
    provider_at_once: int = Field(5, ge=1, le=10_000)
    """
    Maximum concurrent model calls of `chat`, for all workers together. Default: 5.
    """
    provider_spacing_ms: int = Field(200, ge=0, le=60_000)
    """
    Minimum time between two model calls of `chat`, for all workers together, in
    milliseconds. Default: 200.
    """
