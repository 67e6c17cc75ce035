"""The settings of the functions, which the stacks set as environment variables."""

from functools import cache
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class AwsSettings(BaseSettings):
    """The settings of all functions; each uses those that it needs."""

    model_config = SettingsConfigDict(frozen=True)

    jobs_table_name: str = ""
    """Name of the DynamoDB table of job records."""
    queue_url: str = ""
    """URL of the SQS queue that carries job ids."""
    results_bucket_name: str = ""
    """Name of the S3 bucket of results, large requests and uploads."""
    model_secret_name: str = ""
    """Name of the secret with the key of the model's provider; empty for no key."""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins of pages that may call the API, separated by commas."""
    completed_days: float = Field(default=7.0, gt=0)
    """Days that records of completed jobs are kept."""
    failed_days: float = Field(default=14.0, gt=0)
    """Days that records of failed jobs are kept."""

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())


@cache
def aws_settings() -> AwsSettings:
    """Read the settings, once for each execution environment."""
    return AwsSettings()
