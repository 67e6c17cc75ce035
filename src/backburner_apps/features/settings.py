"""The settings of `features`."""

from datetime import timedelta

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from backburner_apps.features.core.codes import TIMEOUT_SECONDS
from backburner_apps.features.core.records import Retention


class FeaturesSettings(BaseSettings):
    """How long jobs may run, and how long they and their results are kept."""

    model_config = SettingsConfigDict(env_prefix="BACKBURNER_FEATURES_", frozen=True)

    keep_days: float = Field(7.0, gt=0, le=3650)
    """How many days completed jobs and their results are kept. Default: 7."""
    keep_failed_days: float = Field(14.0, gt=0, le=3650)
    """How many days failed jobs and uploaded files are kept. Default: 14."""
    timeout_seconds: float = Field(TIMEOUT_SECONDS, gt=0, le=TIMEOUT_SECONDS)
    """Longest run of one job in seconds; then it has failed. Default: 600."""
    ai_seconds: float = Field(300.0, gt=0, le=TIMEOUT_SECONDS)
    """How many seconds a model's answer may take in all. Default: 300."""

    @property
    def retention(self) -> Retention:
        """How long records and results are kept."""
        return Retention(
            timedelta(days=self.keep_days), timedelta(days=self.keep_failed_days)
        )
