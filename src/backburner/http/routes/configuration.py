"""The configuration of the server, as `doctor` reports it; secrets are not shown."""

from datetime import datetime
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from backburner.environment import shown
from backburner.http import wire
from backburner.http.auth import Operator
from backburner.http.problems import documented
from backburner.http.state import server_state_of

router = APIRouter(tags=["operations"])


class FindingView(BaseModel):
    """One finding."""

    status: Literal["pass", "warn", "fail"]
    name: str
    message: str
    fix: str = Field(description="What to do; empty if it passed.")


class SettingView(BaseModel):
    """A setting with the name of its variable."""

    name: str
    value: str = Field(description="For a secret only `set` or `not set`.")


class ConfigurationView(BaseModel):
    """The settings of a server, and the findings of an examination."""

    version: str
    examined_at: datetime | None = Field(
        description="When the findings were collected; null if not yet."
    )
    examining: bool = Field(
        description="Whether newer findings are being collected: read again soon."
    )
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
    Check store, broker and settings like `backburner doctor`, and list the settings.

    The checks run in the background, at most every ten seconds. The response has the
    latest findings; `examining` is true while newer ones are being collected. Secrets
    are shown as set or not set, and passwords in URLs are removed.
    """
    server_state = server_state_of(request)
    report = await server_state.examination.report()
    settings = shown(server_state.settings)
    view = {
        "version": server_state.version,
        "examined_at": wire.time(report.at),
        "examining": report.is_running,
        "findings": [finding._asdict() for finding in report.findings],
        "settings": [{"name": name, "value": settings[name]} for name in settings],
    }
    return wire.answer(view, headers={"Cache-Control": "no-store"})
