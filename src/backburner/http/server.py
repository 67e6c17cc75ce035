"""The ASGI application: every route over one engine."""

import secrets
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from backburner.domain.errors import BackburnerError
from backburner.engine.engine import Engine
from backburner.engine.keys import Keys
from backburner.engine.links import Links
from backburner.http import (
    auth,
    batches,
    blobs,
    budget_schemas,
    budgets,
    dead_letters,
    deliveries,
    docs,
    endpoints,
    events,
    flows,
    group_schemas,
    health,
    house,
    jobs,
    lanes,
    problems,
    queues,
    schemas,
    socket,
    usage,
    webhook_schemas,
)
from backburner.http import keys as key_routes
from backburner.http.access import Access
from backburner.http.auth import Authenticate, as_developer
from backburner.http.door import Door
from backburner.http.limits import Limits
from backburner.settings import Settings

ROUTERS = (
    jobs.hot,
    jobs.router,
    flows.router,
    batches.router,
    blobs.router,
    dead_letters.router,
    deliveries.router,
    endpoints.router,
    events.router,
    socket.router,
    house.router,
    queues.router,
    usage.router,
    budgets.router,
    lanes.router,
    key_routes.router,
    health.router,
    docs.router,
)
DESCRIPTION = """\
Durable asynchronous jobs: a ticket now, the result when it is ready.

Times are RFC 3339 in UTC. Errors are `application/problem+json` with a stable `code`.
Every answer has an `X-Request-ID`: yours if it is well-formed, else a new one.
"""


def build(
    engine: Engine,
    settings: Settings,
    *,
    keys: Keys,
    version: str | None = None,
    authenticate: Authenticate = as_developer,
    rooms: Sequence[BaseRoute] = (),
) -> FastAPI:
    """
    Return the application over an engine that is open.

    Before the server is told to stop, call `stop(app)`: streams end then, and the
    server need not wait for their readers. `rooms` are routes of applications.
    """
    version = version or metadata.version("backburner")
    app = FastAPI(
        title="Backburner",
        version=version,
        description=DESCRIPTION,
        openapi_url=None,
        redirect_slashes=False,
    )
    is_limited = authenticate is not as_developer and settings.key_rate > 0
    app.state.door = Door(
        engine,
        settings,
        version,
        authenticate,
        keys,
        _links(engine, settings),
        Limits(settings.key_rate, engine.now) if is_limited else None,
    )
    for router in ROUTERS:
        # Flat, so that a request is matched against one list.
        app.router.routes.extend(router.routes)
    app.router.routes.extend(rooms)
    app.add_exception_handler(BackburnerError, problems.answer_error)
    app.add_exception_handler(RequestValidationError, problems.answer_invalid)
    app.add_exception_handler(HTTPException, problems.answer_plain)
    app.add_middleware(Access)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _links(engine: Engine, settings: Settings) -> Links:
    # Without a secret of their own, links hold in this process and as long as it does.
    return Links(settings.link_secrets or (secrets.token_hex(32),), engine.now)


def stop(app: FastAPI) -> None:
    """End the streams and say on /readyz that no more requests should come."""
    app.state.door.streams.stopping.set()


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        described = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        _, extra = models_json_schema(
            [(model, "validation") for model in _READ_BY_ROUTES],
            ref_template="#/components/schemas/{model}",
        )
        components = described.setdefault("components", {}).setdefault("schemas", {})
        components |= extra["$defs"]
        components.pop("HTTPValidationError", None)
        components.pop("ValidationError", None)
        _describe_keys(described, app)
        app.openapi_schema = described
    return app.openapi_schema


def _describe_keys(described: dict[str, Any], app: FastAPI) -> None:
    """Say of every operation which scope it needs, and how a key is shown."""
    described["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key."}
    }
    for route in app.routes:
        scope = auth.scope_of(route)
        if scope in (None, auth.PUBLIC) or not isinstance(route, APIRoute):
            continue
        for method in route.methods or ():
            operation = described["paths"][route.path_format][method.lower()]
            operation["security"] = [{"key": [scope]}]
            operation.setdefault("parameters", []).append(_USER)


_USER = {
    "name": "X-User-Id",
    "in": "header",
    "description": "The user to act as; needs the scope `users:act`.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": 200,
        "pattern": "^[!-~]+$",
    },
}
_READ_BY_ROUTES = (
    schemas.JobRequest,
    group_schemas.FlowRequest,
    group_schemas.BatchRequest,
    group_schemas.MembersRequest,
    schemas.KeyRequest,
    budget_schemas.BudgetRequest,
    webhook_schemas.EndpointRequest,
    schemas.RetryRequest,
    schemas.Problem,
    schemas.EventView,
)
