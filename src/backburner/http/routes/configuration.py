"""The configuration of the server, as `doctor` reports it; secrets are not shown."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from backburner.environment import shown
from backburner.http import wire
from backburner.http.auth import Caller, require
from backburner.http.problems import documented
from backburner.http.state import server_state_of

router = APIRouter(tags=["operations"])

Operator = Annotated[Caller, require("queues:read")]


class FindingView(BaseModel):
    """One thing that was looked at."""

    status: Literal["pass", "warn", "fail"]
    name: str
    message: str
    fix: str = Field(description="What to do; empty if it passed.")


class SettingView(BaseModel):
    """A setting by the name of its variable."""

    name: str
    value: str = Field(description="Of a secret only `set` or `not set`.")


class ConfigurationView(BaseModel):
    """What a server is set to, and what an examination of it found."""

    version: str
    examined_at: datetime
    findings: list[FindingView]
    settings: list[SettingView]


@router.get(
    "/v1/configuration",
    operation_id="get_configuration",
    summary="Get the configuration and what `doctor` finds",
    response_model=ConfigurationView,
    responses=documented(),
)
async def configuration(request: Request, _caller: Operator) -> Response:
    """
    Examine store, broker and settings as `backburner doctor` does, and list them.

    It is examined at most every ten seconds. Secrets are only said to be set or not,
    and passwords in URLs are left out.
    """
    server_state = server_state_of(request)
    at, findings = await server_state.examination.report()
    settings = shown(server_state.settings)
    view = {
        "version": server_state.version,
        "examined_at": wire.time(at),
        "findings": [finding._asdict() for finding in findings],
        "settings": [{"name": name, "value": settings[name]} for name in settings],
    }
    return wire.answer(view, headers={"Cache-Control": "no-store"})
