"""Activity of the last minutes: numbers of jobs."""

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from backburner.engine.submit.submission import instant
from backburner.http import wire
from backburner.http.auth import Reader
from backburner.http.problems import documented
from backburner.http.schemas.jobs import Time
from backburner.http.shared_answers import shareable
from backburner.http.state import server_state_of

router = APIRouter(tags=["jobs"])

USUAL = timedelta(minutes=30)


class ActivityQuery(BaseModel):
    """The time from which to count."""

    model_config = ConfigDict(extra="forbid")

    since: Time | None = Field(None, description="Default: 30 minutes ago.")


class MinuteView(BaseModel):
    """Numbers of jobs in one minute."""

    at: datetime
    submitted: int
    succeeded: int
    failed: int
    retried: int = Field(description="Failed attempts that will be retried.")


class ActivityView(BaseModel):
    """Numbers of jobs by minute; minutes without jobs are left out."""

    since: datetime
    capped: bool = Field(description="Whether `since` is later than requested.")
    items: list[MinuteView]


@router.get(
    "/v1/activity",
    operation_id="get_activity",
    summary="Count jobs by minute",
    response_model=ActivityView,
    responses=documented(),
)
@shareable
async def activity(
    request: Request, caller: Reader, query: Annotated[ActivityQuery, Query()]
) -> Response:
    """
    Count the jobs visible to the caller that were submitted and that ended, by minute.

    At most the newest 50,000 events of the store are read: `since` is the time from
    which the numbers are complete.
    """
    engine = server_state_of(request).engine
    since = instant(query.since)
    if since is None:
        since = engine.now() - USUAL // timedelta(milliseconds=1)
    found = await engine.store.activity(caller.visible, since=since)
    items = [{**one._asdict(), "at": wire.time(one.at)} for one in found.minutes]
    view = {"since": wire.time(found.since), "capped": found.is_capped, "items": items}
    return wire.answer(view)
