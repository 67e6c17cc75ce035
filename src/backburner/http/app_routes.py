"""An application's routes, described for OpenAPI."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from fastapi import APIRouter
from pydantic import BaseModel, TypeAdapter
from starlette.responses import Response
from starlette.routing import BaseRoute

from backburner.http.problems import documented


class Route(NamedTuple):
    """A route of an application: `Route("GET", "/songs", listing, "List songs")`."""

    method: str
    path: str
    handler: Callable[..., Awaitable[Response]]
    summary: str
    body: type[BaseModel] | None = None
    """The model that the handler reads with `web.read`, for OpenAPI."""
    operation_id: str | None = None
    """By default, the names of the application and the handler."""


def routes_of(application: str, routes: Sequence[Route]) -> Sequence[BaseRoute]:
    """Convert an application's routes for `App(serves=…)`."""
    router = APIRouter(tags=[application])
    for route in routes:
        named = route.operation_id or f"{application}_{route.handler.__name__}"
        takes = None if route.body is None else json_body(TypeAdapter(route.body))
        router.add_api_route(
            route.path,
            route.handler,
            methods=[route.method],
            summary=route.summary,
            operation_id=named,
            responses=documented(),
            openapi_extra=takes,
        )
    return router.routes


def applications_of(routes: Sequence[BaseRoute]) -> tuple[str, ...]:
    """Return the names of the applications that these routes belong to."""
    found = {str(tag) for route in routes for tag in getattr(route, "tags", ())}
    return tuple(sorted(found))


def json_body(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """Describe for OpenAPI a body of simple fields that a route reads itself."""
    schema = adapter.json_schema()
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}
