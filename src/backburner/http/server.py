"""The ASGI application with all routes of one engine."""

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
from backburner.engine.access.keys import Keys
from backburner.engine.access.signed_urls import SignedUrls
from backburner.engine.access.signer import Signer
from backburner.engine.engine import Engine
from backburner.http import auth, dashboard, docs, problems
from backburner.http.access import Access
from backburner.http.app_routes import applications_of
from backburner.http.auth import Authenticate, as_developer
from backburner.http.cors import Cors
from backburner.http.examination import Examination, Examine
from backburner.http.limits import Limits
from backburner.http.routes import (
    activity,
    batches,
    blobs,
    browser,
    budgets,
    capabilities,
    configuration,
    dead_letters,
    deliveries,
    endpoints,
    events,
    files,
    flows,
    health,
    inspection,
    jobs,
    lanes,
    me,
    questions,
    queues,
    schedules,
    signals,
    steps,
    usage,
    workers,
)
from backburner.http.routes import keys as key_routes
from backburner.http.schemas import browser as browser_schemas
from backburner.http.schemas import budgets as budget_schemas
from backburner.http.schemas import groups as group_schemas
from backburner.http.schemas import jobs as job_schemas
from backburner.http.schemas import webhooks as webhook_schemas
from backburner.http.sessions import Sessions
from backburner.http.state import ServerState
from backburner.http.streams import socket
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
    files.router,
    socket.router,
    activity.router,
    capabilities.router,
    configuration.router,
    queues.router,
    schedules.router,
    workers.router,
    usage.router,
    budgets.router,
    lanes.router,
    steps.router,
    inspection.router,
    signals.router,
    questions.router,
    key_routes.router,
    browser.router,
    me.router,
    dashboard.router,
    health.router,
    docs.router,
)
DESCRIPTION = """\
Durable asynchronous jobs: submit a job, and get its result when it is ready.

Times are RFC 3339 in UTC. Errors are `application/problem+json` with a stable `code`.
Every response has an `X-Request-ID`: yours if it is well-formed, otherwise a new one.
"""


def build(  # noqa: PLR0913 - independent parts
    engine: Engine,
    settings: Settings,
    *,
    keys: Keys,
    version: str | None = None,
    authenticate: Authenticate = as_developer,
    app_routes: Sequence[BaseRoute] = (),
    unavailable: tuple[str, ...] = (),
    examine: Examine | None = None,
) -> FastAPI:
    """
    Return the application for an open engine.

    Call `stop(app)` before the server is stopped: it ends the streams, so that the
    server need not wait for their readers. `app_routes` are the routes of applications.
    `unavailable` are the names of applications that are not served. `examine` checks
    the installation when a caller requests the configuration.
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
    # Without a configured secret, signatures are valid only while this process runs.
    signing = settings.link_secrets or (secrets.token_hex(32),)
    signer = Signer(signing, engine.now)
    app.state.server_state = ServerState(
        engine,
        settings,
        version,
        authenticate,
        keys,
        SignedUrls(signing, engine.now),
        signer,
        Sessions(signer, is_secure=settings.cookie_secure),
        Limits(settings.key_rate, engine.now) if is_limited else None,
        unavailable,
        applications=applications_of(app_routes),
        examination=Examination(examine, engine.now),
    )
    for router in ROUTERS:
        # Flat, so that requests are matched against a single list.
        app.router.routes.extend(router.routes)
    app.router.routes.extend(app_routes)
    if unavailable:
        app.router.default = problems.unavailable(unavailable)
    app.add_exception_handler(BackburnerError, problems.answer_error)
    app.add_exception_handler(RequestValidationError, problems.answer_invalid)
    app.add_exception_handler(HTTPException, problems.answer_plain)
    app.add_middleware(Access, cors=Cors(settings.cors_origins))
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def stop(app: FastAPI) -> None:
    """End the streams, and make /readyz report that the server is stopping."""
    app.state.server_state.streams.stopping.set()


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
    """Add to every operation its scope and the ways to authenticate."""
    described["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key."},
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": app.state.server_state.sessions.name,
            "description": "A session of `POST /v1/session`; with each request but "
            "GET its `csrf_token` as `X-CSRF-Token`.",
        },
        "token": {
            "type": "apiKey",
            "in": "query",
            "name": "token",
            "description": "A token of `POST /v1/stream-tokens`.",
        },
    }
    for route in app.routes:
        scope = auth.scope_of(route)
        if scope in (None, auth.PUBLIC) or not isinstance(route, APIRoute):
            continue
        for method in route.methods or ():
            operation = described["paths"][route.path_format][method.lower()]
            needed = [] if scope == auth.ANY else [scope]
            operation["security"] = [{"key": needed}, {"session": []}]
            if auth.takes_tokens(route):
                operation["security"].append({"token": []})
            operation.setdefault("parameters", []).extend(_ACTING)


_ACTING = [
    {
        "name": name,
        "in": "header",
        "description": description,
        "schema": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "pattern": "^[!-~]+$",
        },
    }
    for name, description in (
        ("X-User-Id", "The user to act as; needs the scope `users:act`."),
        ("X-Tenant-Id", "The tenant to act in; needs the scope `tenants:act`."),
    )
]
_READ_BY_ROUTES = (
    job_schemas.JobRequest,
    job_schemas.JobChange,
    job_schemas.ScheduleRequest,
    group_schemas.FlowRequest,
    group_schemas.BatchRequest,
    group_schemas.MembersRequest,
    job_schemas.KeyRequest,
    browser_schemas.StreamTokenRequest,
    browser_schemas.SessionRequest,
    budget_schemas.BudgetRequest,
    webhook_schemas.EndpointRequest,
    job_schemas.RetryRequest,
    job_schemas.BulkRequest,
    job_schemas.ForkRequest,
    job_schemas.Problem,
    job_schemas.EventView,
)
