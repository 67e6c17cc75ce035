"""The settings of the Tasks service."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from backburner import ServiceUrl, TimeZone


class TasksSettings(BaseSettings):
    """Where the two services are, and what a user may use."""

    model_config = SettingsConfigDict(
        env_prefix="BACKBURNER_TASKS_", frozen=True, populate_by_name=True
    )

    service_base_url: ServiceUrl = Field("", validation_alias="TASKS_SERVICE_BASE_URL")
    """Where the Tasks service is called back; empty: where this process serves."""
    ai_service_base_url: ServiceUrl = Field("", validation_alias="AI_SERVICE_BASE_URL")
    """Where the AI service is; empty: where this process serves."""
    tokens: int = Field(0, ge=0, le=10**12)
    """How many tokens a user may use in a window; 0: no budget of this service's."""
    window_seconds: int = Field(86_400, ge=1, le=31_536_000)
    """How long that window is."""
    hold_seconds: float = Field(900.0, gt=0, le=86_400)
    """How long tokens are held for a request that is not called back."""
    keep_days: float = Field(90.0, gt=0, le=3650)
    """How long a request for a task is known; longer than its dead letter is kept."""
    timezone: TimeZone = "UTC"
    """What "tomorrow" is told by, such as Europe/Berlin."""
