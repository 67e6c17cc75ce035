"""Routes for pages in a browser: stream tokens and sessions."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.auth.key import ApiKey
from backburner.domain.errors import (
    BatchNotFound,
    FlowNotFound,
    InvalidInput,
    JobNotFound,
    StoreFull,
    StoreUnavailable,
)
from backburner.http import audit, body, wire
from backburner.http.auth import (
    Anybody,
    Caller,
    Reader,
    caller_of,
    count,
    refuse_foreign_page,
)
from backburner.http.problems import (
    BodyTooLarge,
    CsrfRefused,
    ForeignOrigin,
    MalformedBody,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
    documented,
)
from backburner.http.routes import jobs
from backburner.http.schemas.browser import (
    SessionRequest,
    SessionView,
    StreamTokenRequest,
    StreamTokenView,
)
from backburner.http.sessions import Session, check_csrf
from backburner.http.state import ServerState, server_state_of
from backburner.http.streams.access import Kind, issue

router = APIRouter(tags=["browser"])


UNKEPT = {"Cache-Control": "no-store"}
MAX_BODY = 4096


@router.post(
    "/v1/stream-tokens",
    operation_id="create_stream_token",
    summary="Get a token that opens one stream",
    status_code=201,
    response_model=StreamTokenView,
    response_description="The token. Anyone who has it can use it until it expires.",
    responses=documented(JobNotFound, FlowNotFound, BatchNotFound, body=True),
    openapi_extra={"requestBody": jobs.json_body("StreamTokenRequest")},
)
async def stream_token(request: Request, caller: Reader) -> Response:
    """
    Return a token that opens one stream as `?token=`, in place of a key.

    Use it with `EventSource` and `WebSocket` in a browser, which cannot send a key. A
    stream ends when its token expires or the key that created the token is revoked.
    """
    server_state = server_state_of(request)
    asked = await body.read(request, StreamTokenRequest, limit=MAX_BODY)
    kind, name = asked.subject
    await _check_exists(server_state, caller, kind, name)
    span = timedelta(seconds=asked.seconds)
    if caller.until is not None:
        left = caller.until - server_state.engine.now()
        span = min(span, timedelta(milliseconds=left))
    token, expires_at = issue(server_state.signer, caller, kind, name, span)
    told = {"token": token, "expires_at": wire.time(expires_at)}
    return wire.answer(told, 201, UNKEPT)


@router.post(
    "/v1/session",
    operation_id="log_in",
    summary="Log in with an API key",
    response_model=SessionView,
    response_description="The session, and its cookie in `Set-Cookie`.",
    responses=documented(
        MalformedBody,
        BodyTooLarge,
        UnsupportedMediaType,
        InvalidInput,
        ForeignOrigin,
        Unauthorized,
        TooManyRequests,
        StoreUnavailable,
        StoreFull,
        public=True,
    ),
    openapi_extra={"requestBody": jobs.json_body("SessionRequest")},
)
async def log_in(request: Request, _caller: Anybody) -> Response:
    """
    Create a session: a cookie that a browser sends in place of the key, for 12 hours.

    Requests other than GET must then have the type `application/json` and `csrf_token`
    in `X-CSRF-Token`. A session has the key's permissions. It ends when the key is
    revoked.
    """
    refuse_foreign_page(request)
    server_state = server_state_of(request)
    asked = await body.read(request, SessionRequest, limit=MAX_BODY)
    key = await server_state.keys.check(asked.key.get_secret_value().strip())
    if key is None:
        raise Unauthorized("the API key is not valid")
    caller = caller_of(key)
    count(request, caller)
    await audit.record(request, caller, "session.opened", key.id)
    session, cookie = server_state.sessions.open(key.id)
    return wire.answer(_view(session, key), 200, {**UNKEPT, "Set-Cookie": cookie})


@router.get(
    "/v1/session",
    operation_id="get_session",
    summary="Get the session of this browser",
    response_model=SessionView,
    responses=documented(ForeignOrigin, Unauthorized, StoreUnavailable, public=True),
)
async def session(request: Request, _caller: Anybody) -> Response:
    """Return the session of the cookie with its CSRF token, for a page that reloads."""
    refuse_foreign_page(request)
    server_state = server_state_of(request)
    found = server_state.sessions.find(request)
    key = None if found is None else await server_state.keys.usable(found.key)
    if found is None or key is None:
        raise Unauthorized("there is no session: log in with POST /v1/session")
    return wire.answer(_view(found, key), 200, UNKEPT)


@router.delete(
    "/v1/session",
    operation_id="log_out",
    summary="Log out",
    status_code=204,
    response_class=Response,
    response_description="The session in this browser has ended.",
    responses=documented(CsrfRefused, ForeignOrigin, public=True),
)
async def log_out(request: Request, _caller: Anybody) -> Response:
    """
    End the session in this browser: the cookie is deleted.

    A copy of the cookie stays valid until it expires; revoke the key to end that too.
    """
    refuse_foreign_page(request)
    server_state = server_state_of(request)
    sessions = server_state.sessions
    found = sessions.find(request)
    if found is not None:
        check_csrf(request, found)
        # Without the store, too, the browser forgets its cookie.
        with suppress(StoreUnavailable):
            await _record_end(request, found)
    return Response(status_code=204, headers={"Set-Cookie": sessions.closing()})


async def _record_end(request: Request, session: Session) -> None:
    key = await server_state_of(request).keys.usable(session.key)
    if key is not None:
        await audit.record(request, caller_of(key), "session.closed", key.id)


async def _check_exists(
    server_state: ServerState, caller: Caller, kind: Kind, name: str
) -> None:
    """Refuse a token for something that the caller cannot see."""
    match kind:
        case "job":
            await server_state.engine.find(name, caller.visible)
        case "flow":
            await server_state.engine.flows.find(name, caller.visible)
        case "batch":
            await server_state.engine.batches.find(name, caller.visible)
        case "topic":
            pass  # topics exist without a row; readers see only their own events of it


def _view(session: Session, key: ApiKey) -> dict[str, Any]:
    caller = caller_of(key)
    return {
        "csrf_token": session.csrf,
        "expires_at": wire.time(session.expires_at),
        "tenant": caller.owner.tenant,
        "user": caller.owner.user,
        "scopes": sorted(caller.scopes),
    }
