"""The settings of the Tasks service."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from backburner import ServiceUrl, TimeZone


class TasksSettings(BaseSettings):
    """The addresses of the two services and the limits of the Tasks service."""

    model_config = SettingsConfigDict(
        env_prefix="BACKBURNER_TASKS_", frozen=True, populate_by_name=True
    )

    service_base_url: ServiceUrl = Field("", validation_alias="TASKS_SERVICE_BASE_URL")
    """
    URL at which the AI service calls the Tasks service back. Default: the address that
    this process serves on. Example: `https://tasks.example.com`.
    """
    ai_service_base_url: ServiceUrl = Field("", validation_alias="AI_SERVICE_BASE_URL")
    """
    URL of the AI service. Default: the address that this process serves on. Example:
    `https://ai.example.com`.
    """
    tokens: int = Field(0, ge=0, le=10**12)
    """
    Number of tokens that one user may use per window
    (`BACKBURNER_TASKS_WINDOW_SECONDS`); 0 means no limit. Default: 0.
    """
    window_seconds: int = Field(86_400, ge=1, le=31_536_000)
    """
    Length of the window of `BACKBURNER_TASKS_TOKENS`, in seconds. Default: 86400 (one
    day).
    """
    hold_seconds: float = Field(900.0, gt=0, le=86_400)
    """
    How long tokens are reserved for a request that gets no callback, in seconds.
    Default: 900.
    """
    keep_days: float = Field(90.0, gt=0, le=3650)
    """
    Retention of requests for tasks, in days; it should be longer than that of failed
    jobs (`BACKBURNER_KEEP_FAILED_DAYS`). Default: 90.
    """
    timezone: TimeZone = "UTC"
    """
    Time zone in which words such as "tomorrow" are interpreted. Default: UTC. Example:
    `Europe/Berlin`.
    """
