"""The ASGI application: every route over one engine."""

from importlib import metadata
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

from backburner.domain.errors import BackburnerError
from backburner.engine.engine import Engine
from backburner.http import (
    dead_letters,
    docs,
    events,
    health,
    house,
    jobs,
    problems,
    schemas,
    socket,
)
from backburner.http.access import Access
from backburner.http.auth import Authenticate, as_developer
from backburner.http.door import Door
from backburner.settings import Settings

ROUTERS = (
    jobs.hot,
    jobs.router,
    dead_letters.router,
    events.router,
    socket.router,
    house.router,
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
    version: str | None = None,
    authenticate: Authenticate = as_developer,
) -> FastAPI:
    """
    Return the application over an engine that is open.

    Before the server is told to stop, call `stop(app)`: streams end then, and the
    server need not wait for their readers.
    """
    version = version or metadata.version("backburner")
    app = FastAPI(
        title="Backburner",
        version=version,
        description=DESCRIPTION,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.door = Door(engine, settings, version, authenticate)
    for router in ROUTERS:
        # Flat, so that a request is matched against one list.
        app.router.routes.extend(router.routes)
    app.add_exception_handler(BackburnerError, problems.answer_error)
    app.add_exception_handler(RequestValidationError, problems.answer_invalid)
    app.add_exception_handler(HTTPException, problems.answer_plain)
    app.add_middleware(Access)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


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
        app.openapi_schema = described
    return app.openapi_schema


_READ_BY_ROUTES = (
    schemas.JobRequest,
    schemas.RetryRequest,
    schemas.Problem,
    schemas.EventView,
)
