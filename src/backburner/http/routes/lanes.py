"""Lanes over HTTP: their rates and which are paused."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import StoreUnavailable
from backburner.domain.lanes.lane import present
from backburner.domain.lanes.pace import pace
from backburner.http import wire
from backburner.http.auth import Caller, require
from backburner.http.problems import documented
from backburner.http.state import server_state_of
from backburner.ports.store.lanes import LaneView

router = APIRouter(tags=["operations"])

Operator = Annotated[Caller, require("queues:read")]


class LaneShown(BaseModel):
    """A lane to a provider, shared by the whole fleet."""

    name: str
    state: str = Field(
        description="`open`, `parked` until a time, or `probing`: one call at a time."
    )
    pace: float = Field(description="How many calls a minute may start now.")
    ceiling: float | None = Field(
        description="The most calls a minute that are believed to be served, "
        "once any were refused or the provider told."
    )
    requests: int | None = Field(description="Calls a minute, as declared.")
    tokens: int | None = Field(description="Tokens a minute, as declared.")
    at_once: int | None = Field(description="Calls under way at once, as declared.")
    spacing_seconds: float = Field(description="The least time between two starts.")
    in_use: int = Field(description="Calls under way.")
    last_minute: int = Field(description="Calls started within the last minute.")
    parked_until: datetime | None
    parkings: int = Field(description="How often it was parked, ever.")


class LaneList(BaseModel):
    """The lanes that were declared or used."""

    items: list[LaneShown]


@router.get(
    "/v1/lanes",
    operation_id="list_lanes",
    summary="List the lanes to providers",
    response_model=LaneList,
    responses=documented(StoreUnavailable),
)
async def listing(request: Request, _caller: Operator) -> Response:
    """List the lanes, what each allows and has learnt, and which are parked."""
    found = await server_state_of(request).engine.store.lanes()
    return wire.answer({"items": [_view(view) for view in found]})


def _view(view: LaneView) -> dict[str, Any]:
    state = present(view.state, view.now)
    is_parked = state.parked_until > view.now
    shown = "probing" if state.refusals else "open"
    return {
        "name": state.name,
        "state": "parked" if is_parked else shown,
        "pace": round(pace(state, view.now), 1),
        "ceiling": round(state.ceiling, 1) if state.is_learnt or state.told else None,
        "requests": state.requests,
        "tokens": state.tokens,
        "at_once": state.at_once,
        "spacing_seconds": state.spacing / 1000,
        "in_use": view.in_use,
        "last_minute": sum(start.calls for start in state.starts),
        "parked_until": wire.time(state.parked_until) if is_parked else None,
        "parkings": state.parkings,
    }
