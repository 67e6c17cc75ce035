"""The settings of `chat`."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from backburner_apps.chat.discord.settings import DiscordSettings


class ChatSettings(DiscordSettings):
    """How requests are limited, how long they are awaited, and what is remembered."""

    model_config = SettingsConfigDict(
        env_prefix="BACKBURNER_CHAT_", frozen=True, populate_by_name=True
    )

    duplicate_seconds: float = Field(5.0, ge=0, le=3600)
    """Seconds in which the same request is refused as a duplicate. Default: 5."""
    wait_seconds: int = Field(600, ge=1, le=600)
    """Longest time, in seconds, that `POST /ai/generate` waits for the reply."""
    keep_hours: float = Field(24.0, ge=0.25, le=8760)
    """How many hours a reply is found again under its `requestId`. Default: 24."""
    lock_seconds: float = Field(1200.0, gt=0, le=1200)
    """Longest run of one job, in seconds; a job that runs longer has failed."""
    user_requests: int = Field(60, ge=0, le=1_000_000)
    """Requests that one user may make in a minute; 0: any number. Default: 60."""
    memories: int = Field(5, ge=0, le=50)
    """How many similar memories the model is given. Default: 5; 0: none."""
    provider_at_once: int = Field(5, ge=1, le=10_000)
    """Model calls under way at once, of all workers together. Default: 5."""
    provider_spacing_ms: int = Field(200, ge=0, le=60_000)
    """Least time between two model calls of all workers, in milliseconds."""
