"""Lanes over HTTP: their rates and which are paused."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.lanes.lane import present
from backburner.domain.lanes.pace import pace
from backburner.domain.lanes.permit import Held, forecast
from backburner.http import wire
from backburner.http.auth import Operator
from backburner.http.problems import documented
from backburner.http.schemas.models import list_of, model_of
from backburner.http.state import server_state_of
from backburner.ports.store.lanes import LaneView
from backburner.shapes import operations

router = APIRouter(tags=["operations"])


LaneShown = model_of(operations.Lane)
LaneList = list_of(operations.Lane, "LaneList", "The lanes that were declared or used.")


@router.get(
    "/v1/lanes",
    operation_id="list_lanes",
    summary="List the provider lanes",
    response_model=LaneList,
    responses=documented(),
)
async def listing(request: Request, _caller: Operator) -> Response:
    """List the lanes with their limits, learnt limits and state."""
    found = await server_state_of(request).engine.store.lanes()
    return wire.answer({"items": [_view(view) for view in found]})


def _view(view: LaneView) -> dict[str, Any]:
    state = present(view.state, view.now)
    ahead = forecast(state, held=Held(view.in_use), now=view.now)
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
        "refused_last_minute": sum(start.refused for start in state.starts),
        "waiting": ahead.waiting,
        "done_at": wire.time(view.now + ahead.span) if ahead.waiting else None,
        "parked_until": wire.time(state.parked_until) if is_parked else None,
        "parkings": state.parkings,
    }
