"""The settings of `features`."""

from datetime import timedelta

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from backburner_apps.features.core.codes import TIMEOUT_SECONDS
from backburner_apps.features.core.records import Retention


class FeaturesSettings(BaseSettings):
    """Time limits and retention of jobs and results."""

    model_config = SettingsConfigDict(env_prefix="BACKBURNER_FEATURES_", frozen=True)

    keep_days: float = Field(7.0, gt=0, le=3650)
    """Retention of completed `features` jobs and their results, in days. Default: 7."""
    keep_failed_days: float = Field(14.0, gt=0, le=3650)
    """Retention of failed `features` jobs and uploaded files, in days. Default: 14."""
    timeout_seconds: float = Field(TIMEOUT_SECONDS, gt=0, le=TIMEOUT_SECONDS)
    """
    Maximum run time of one `features` job, in seconds; then it fails. Default: 600.
    """
    ai_seconds: float = Field(300.0, gt=0, le=TIMEOUT_SECONDS)
    """Maximum total time of a model call of `features`, in seconds. Default: 300."""

    @property
    def retention(self) -> Retention:
        """How long records and results are kept."""
        return Retention(
            timedelta(days=self.keep_days), timedelta(days=self.keep_failed_days)
        )
