"""Request and response models of sessions and stream tokens."""

from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from backburner.domain.auth.key import LENGTH
from backburner.http.schemas.jobs import Asked, Name, TopicName
from backburner.http.streams.access import LONGEST, USUAL, Kind


class StreamTokenRequest(Asked):
    """The stream that a token is for."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"job_id": "job_0198c0de-0000-7000-8000-000000000000"}]
        }
    )

    job_id: Name | None = None
    flow_id: Name | None = None
    batch_id: Name | None = None
    topic: TopicName | None = None
    seconds: int = Field(
        int(USUAL.total_seconds()),
        ge=1,
        le=int(LONGEST.total_seconds()),
        description="Lifetime of the token, which also ends the stream.",
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if len(self._named()) != 1:
            raise ValueError("give one of job_id, flow_id, batch_id, topic")
        return self

    @property
    def subject(self) -> tuple[Kind, str]:
        """The kind and name of the subject."""
        return self._named()[0]

    def _named(self) -> list[tuple[Kind, str]]:
        given: list[tuple[Kind, str | None]] = [
            ("job", self.job_id),
            ("flow", self.flow_id),
            ("batch", self.batch_id),
            ("topic", self.topic),
        ]
        return [(kind, name) for kind, name in given if name is not None]


class StreamTokenView(BaseModel):
    """A token for one stream."""

    token: str = Field(description="Pass it in the stream's URL as `?token=`.")
    expires_at: datetime


class SessionRequest(Asked):
    """The key to log in with."""

    key: SecretStr = Field(max_length=LENGTH, description="An API key.")


class SessionView(BaseModel):
    """The session of a browser."""

    csrf_token: str = Field(
        description="Send it as `X-CSRF-Token` with every request except GET."
    )
    expires_at: datetime
    tenant: str
    user: str
    scopes: list[str]
