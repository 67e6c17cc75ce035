"""Response models of endpoints."""

from pydantic import BaseModel, ConfigDict, Field

from backburner.domain.webhooks.address import LONGEST_URL
from backburner.http.schemas.jobs import MAX_LIMIT, Asked
from backburner.http.schemas.models import model_of, page_of
from backburner.shapes import operations


class EndpointRequest(Asked):
    """An endpoint to create."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"url": "https://shop.example.com/hooks"}]}
    )

    url: str = Field(min_length=1, max_length=LONGEST_URL)


class PageQuery(BaseModel):
    """Selects a page of a list."""

    model_config = ConfigDict(extra="forbid")

    cursor: str | None = Field(None, description="`next_cursor` of the previous page.")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)


EndpointView = model_of(operations.Endpoint)
SecretEndpointView = model_of(operations.SecretEndpoint)
EndpointPage = page_of(
    operations.Endpoint, "EndpointPage", "A page of endpoints, newest first."
)
