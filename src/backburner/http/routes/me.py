"""The caller's identity and permissions, for pages that adapt to them."""

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.auth.access import KEYS, READ_TENANT, ROLES, possible, role_of
from backburner.domain.jobs.job import Tenant
from backburner.http import wire
from backburner.http.auth import PUBLIC, AnyKey, Caller, has_keys
from backburner.http.problems import documented
from backburner.http.state import server_state_of
from backburner.http.streams.access import SCOPE as STREAMING

router = APIRouter(tags=["browser"])


class MeView(BaseModel):
    """The caller."""

    tenant: str
    user: str = Field(description="The user that the caller acts as.")
    role: str | None = Field(
        description="The largest role whose scopes the caller has; null if none."
    )
    scopes: list[str]
    sees_tenant: bool = Field(
        description="Whether lists include the data of all users of the tenant."
    )
    changes_tenant: bool = Field(
        description="Whether the caller can cancel and change the jobs, flows and "
        "batches of all users of the tenant."
    )
    sees_traces: bool = Field(description="Whether the caller sees stack traces.")
    streams: bool = Field(
        description="Whether the caller can open event streams such as "
        "`GET /v1/events` (`jobs:read`)."
    )
    roles: dict[str, list[str]] = Field(
        description="The roles that the caller may grant, each with its scopes; empty "
        "without `keys:admin`."
    )
    needs_login: bool = Field(
        description="Whether callers need an API key; false with `serve --dev`."
    )
    version: str = Field(description="The version of the server.")
    applications: list[str] = Field(
        description="The applications whose routes the server serves."
    )


@router.get(
    "/v1/me",
    operation_id="get_me",
    summary="Get the caller's identity and scopes",
    response_model=MeView,
    responses=documented(),
)
async def me(request: Request, caller: AnyKey) -> Response:
    """Return the caller's tenant, user, role and scopes. No scope is needed."""
    view = {
        "tenant": caller.owner.tenant,
        "user": caller.owner.user,
        "role": role_of(caller.scopes),
        "scopes": sorted(caller.scopes - {PUBLIC}),
        "sees_tenant": READ_TENANT in caller.scopes and not caller.names_user,
        "changes_tenant": "jobs:write" in caller.scopes
        and isinstance(caller.changeable, Tenant),
        "sees_traces": caller.sees_traces,
        "streams": STREAMING in caller.scopes,
        "roles": _grantable(caller),
        "needs_login": has_keys(request),
        "version": server_state_of(request).version,
        "applications": server_state_of(request).applications,
    }
    return wire.answer(view, headers={"Cache-Control": "no-store"})


def _grantable(caller: Caller) -> dict[str, list[str]]:
    """Return the roles whose scopes the caller may pass on in its current tenant."""
    if KEYS not in caller.scopes:
        return {}
    held = caller.scopes & possible(caller.owner.tenant, caller.held.user)
    return {
        role.value: sorted(scopes) for role, scopes in ROLES.items() if scopes <= held
    }
