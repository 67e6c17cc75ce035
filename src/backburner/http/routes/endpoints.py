"""Webhook endpoints and their secrets over HTTP."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.errors import (
    EndpointNotFound,
    IllegalTransition,
)
from backburner.domain.webhooks.webhook import Endpoint
from backburner.http import audit, headers, wire
from backburner.http.auth import Caller, require
from backburner.http.problems import (
    documented,
)
from backburner.http.routes import jobs
from backburner.http.schemas.webhooks import (
    EndpointPage,
    EndpointRequest,
    EndpointView,
    PageQuery,
    SecretEndpointView,
)
from backburner.http.state import server_state_of

router = APIRouter(tags=["webhooks"])

Reader = Annotated[Caller, require("webhooks:read")]
Writer = Annotated[Caller, require("webhooks:write")]

CHANGED = documented(EndpointNotFound, writes=True)


@router.post(
    "/v1/endpoints",
    operation_id="create_endpoint",
    summary="Create an endpoint",
    response_model=SecretEndpointView,
    response_description="The endpoint, new or existing, and its secrets.",
    responses=documented(body=True, writes=True),
    openapi_extra={"requestBody": jobs.json_body("EndpointRequest")},
)
async def create(request: Request, caller: Writer) -> Response:
    """
    Return the caller's endpoint for a URL; create it if there is none.

    Each call shows its secrets and is recorded in the audit log.
    """
    server_state = server_state_of(request)
    asked = await server_state.read(request, EndpointRequest)
    found = await server_state.engine.endpoints.create(asked.url, caller.owner)
    # It shows the secrets, also of an existing endpoint.
    await audit.record(request, caller, "endpoint.revealed", found.id)
    return _with_secrets(request, found)


@router.get(
    "/v1/endpoints",
    operation_id="list_endpoints",
    summary="List endpoints, newest first",
    response_model=EndpointPage,
    responses={
        200: {"description": "A page of endpoints.", "headers": headers.LINK},
        **documented(),
    },
)
async def listing(
    request: Request, caller: Reader, query: Annotated[PageQuery, Query()]
) -> Response:
    """List the caller's endpoints; callback URLs of jobs have one, too."""
    found = await server_state_of(request).engine.endpoints.listing(
        caller.owner, before=wire.read_cursor(query.cursor), limit=query.limit + 1
    )
    return wire.page(request, found, limit=query.limit, write=_view)


@router.get(
    "/v1/endpoints/{endpoint_id}",
    operation_id="get_endpoint",
    summary="Get an endpoint",
    response_model=EndpointView,
    response_description="The endpoint.",
    responses=documented(EndpointNotFound),
)
async def show(request: Request, caller: Reader, endpoint_id: str) -> Response:
    """Return an endpoint without its secrets; `POST /v1/endpoints` shows them."""
    endpoints = server_state_of(request).engine.endpoints
    return wire.answer(_view(await endpoints.find(endpoint_id, caller.owner)))


@router.post(
    "/v1/endpoints/{endpoint_id}/rotate",
    operation_id="rotate_endpoint",
    summary="Rotate the secret of an endpoint",
    response_model=SecretEndpointView,
    responses={
        200: {"description": "The endpoint and both its secrets, the new one first."},
        **CHANGED,
        **documented(IllegalTransition),
    },
)
async def rotate(request: Request, caller: Writer, endpoint_id: str) -> Response:
    """Create a new secret; the previous one stays valid for a day."""
    await _record(request, caller, endpoint_id, "rotated")
    endpoints = server_state_of(request).engine.endpoints
    return _with_secrets(request, await endpoints.rotate(endpoint_id, caller.owner))


@router.post(
    "/v1/endpoints/{endpoint_id}/disable",
    operation_id="disable_endpoint",
    summary="Disable an endpoint",
    response_model=EndpointView,
    responses={200: {"description": "The endpoint."}, **CHANGED},
)
async def disable(request: Request, caller: Writer, endpoint_id: str) -> Response:
    """Stop sending to an endpoint: its deliveries become dead letters."""
    await _record(request, caller, endpoint_id, "disabled")
    endpoints = server_state_of(request).engine.endpoints
    return wire.answer(_view(await endpoints.disable(endpoint_id, caller.owner)))


@router.post(
    "/v1/endpoints/{endpoint_id}/enable",
    operation_id="enable_endpoint",
    summary="Enable an endpoint",
    response_model=EndpointView,
    responses={200: {"description": "The endpoint."}, **CHANGED},
)
async def enable(request: Request, caller: Writer, endpoint_id: str) -> Response:
    """Resume sending; deliveries that failed meanwhile can be replayed."""
    await _record(request, caller, endpoint_id, "enabled")
    endpoints = server_state_of(request).engine.endpoints
    return wire.answer(_view(await endpoints.enable(endpoint_id, caller.owner)))


@router.delete(
    "/v1/endpoints/{endpoint_id}",
    operation_id="delete_endpoint",
    summary="Delete an endpoint",
    status_code=204,
    response_class=Response,
    responses={204: {"description": "The endpoint is deleted."}, **CHANGED},
)
async def delete(request: Request, caller: Writer, endpoint_id: str) -> Response:
    """Delete an endpoint and its secrets; jobs that name it notify nobody."""
    await _record(request, caller, endpoint_id, "deleted")
    await server_state_of(request).engine.endpoints.delete(endpoint_id, caller.owner)
    return Response(status_code=204)


async def _record(
    request: Request, caller: Caller, endpoint_id: str, verb: str
) -> None:
    # Only for existing endpoints, so that callers cannot fill the log with any text.
    await server_state_of(request).engine.endpoints.find(endpoint_id, caller.owner)
    await audit.record(request, caller, f"endpoint.{verb}", endpoint_id)


def _with_secrets(request: Request, endpoint: Endpoint) -> Response:
    secrets = server_state_of(request).engine.endpoints.secrets(endpoint)
    told = {**_view(endpoint), "secrets": secrets}
    return wire.answer(told, headers={"Cache-Control": "no-store"})


def _view(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "id": endpoint.id,
        "url": endpoint.url,
        "version": endpoint.version,
        "created_at": wire.time(endpoint.created_at),
        "rotated_at": wire.time(endpoint.rotated_at),
        "disabled_at": wire.time(endpoint.disabled_at),
        "disabled_reason": endpoint.disabled_reason,
    }
