"""Response models of endpoints."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from backburner.domain.webhooks.address import LONGEST_URL
from backburner.http.schemas.jobs import MAX_LIMIT, Asked


class EndpointRequest(Asked):
    """Where webhooks are to go."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"url": "https://shop.example.com/hooks"}]}
    )

    url: str = Field(min_length=1, max_length=LONGEST_URL)


class PageQuery(BaseModel):
    """Which page of a list."""

    model_config = ConfigDict(extra="forbid")

    cursor: str | None = Field(None, description="`next_cursor` of the page before.")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


class EndpointView(BaseModel):
    """Where webhooks go, without its secrets."""

    id: str
    url: str
    version: int = Field(description="Which secret signs, from 1.")
    created_at: datetime
    rotated_at: datetime | None
    disabled_at: datetime | None = Field(description="Since when nothing is sent.")
    disabled_reason: str | None


class SecretEndpointView(EndpointView):
    """Where webhooks go, and what they are verified by."""

    secrets: list[str] = Field(
        description="`whsec_…`, the newest first; two for a day after a rotation."
    )


class EndpointPage(BaseModel):
    """A page of endpoints, newest first."""

    items: list[EndpointView]
    next_cursor: str | None
