"""API keys and the audit log over HTTP."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.auth.access import Grant, may_revoke, may_see, refusal
from backburner.domain.auth.key import ApiKey
from backburner.domain.errors import (
    KeyNotFound,
)
from backburner.engine.access.keys import NewKey
from backburner.engine.submit.submission import instant
from backburner.http import wire
from backburner.http.auth import Caller, actor_of, require
from backburner.http.problems import (
    Forbidden,
    documented,
)
from backburner.http.routes import jobs
from backburner.http.schemas.jobs import (
    AuditPage,
    AuditQuery,
    KeyList,
    KeyRequest,
    NewKeyView,
)
from backburner.http.state import server_state_of
from backburner.ports.store.keys import AuditEntry

router = APIRouter(tags=["keys"])

Administrator = Annotated[Caller, require("keys:admin")]
Auditor = Annotated[Caller, require("audit:read")]


@router.get(
    "/v1/keys",
    operation_id="list_keys",
    summary="List the API keys",
    response_model=KeyList,
    responses=documented(),
)
async def listing(request: Request, caller: Administrator) -> Response:
    """
    List the keys of the caller's tenant, including expired and revoked ones.

    A key that is bound to a user lists only the keys of that user.
    """
    found = await server_state_of(request).keys.list(caller.owner.tenant)
    seen = [key for key in found if may_see(caller.held, key.grant)]
    return wire.answer({"items": [_key(key) for key in seen]})


@router.post(
    "/v1/keys",
    operation_id="create_key",
    summary="Create an API key",
    status_code=201,
    response_model=NewKeyView,
    response_description="The key. Its text is shown here and never again.",
    responses=documented(body=True, writes=True),
    openapi_extra={"requestBody": jobs.json_body("KeyRequest")},
)
async def create(request: Request, caller: Administrator) -> Response:
    """
    Create a key for the caller's tenant, with some or all of the caller's scopes.

    A key cannot grant more than it has: one that is bound to a user creates only keys
    of that user, and one that expires only keys that do not expire later.
    """
    server_state = server_state_of(request)
    asked = await server_state.read(request, KeyRequest)
    wanted = NewKey(
        name=asked.name,
        scopes=frozenset(asked.scopes),
        user=asked.user,
        expires_at=instant(asked.expires_at),
    )
    given = Grant(caller.owner.tenant, wanted.scopes, wanted.user, wanted.expires_at)
    reason = refusal(caller.held, given)
    if reason is not None:
        raise Forbidden(reason)
    key, text = await server_state.keys.create(wanted, actor_of(request, caller))
    headers = {"Cache-Control": "no-store"}
    return wire.answer({**_key(key), "key": text}, 201, headers)


@router.delete(
    "/v1/keys/{key_id}",
    operation_id="revoke_key",
    summary="Revoke an API key",
    status_code=204,
    response_class=Response,
    response_description="The key is revoked.",
    responses=documented(KeyNotFound, writes=True),
)
async def revoke(request: Request, caller: Administrator, key_id: str) -> Response:
    """
    Revoke a key. Repeating this is not an error.

    This server refuses the key at once, other servers within seconds. The caller must
    have every scope of the key; a caller that is bound to a user revokes only keys of
    that user.
    """
    keys = server_state_of(request).keys
    key = await keys.find(key_id, caller.owner.tenant)
    if not may_see(caller.held, key.grant):
        raise KeyNotFound("the key does not exist or belongs to another owner")
    if not may_revoke(caller.held, key.grant):
        raise Forbidden("a key can revoke only keys whose scopes it also has")
    await keys.revoke(key_id, actor_of(request, caller))
    return Response(status_code=204)


@router.get(
    "/v1/audit",
    operation_id="list_audit",
    summary="List the audit log",
    response_model=AuditPage,
    responses=documented(),
)
async def audited(
    request: Request, caller: Auditor, query: Annotated[AuditQuery, Query()]
) -> Response:
    """List the entries of the audit log of the caller's tenant, newest first."""
    found = await server_state_of(request).engine.store.audited(
        caller.owner.tenant, before=query.before, limit=query.limit
    )
    return wire.answer({"items": [_entry(entry) for entry in found]})


def _key(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "user": key.user,
        "scopes": sorted(key.scopes),
        "created_at": wire.time(key.created_at),
        "expires_at": wire.time(key.expires_at),
        "revoked_at": wire.time(key.revoked_at),
        "last_used_at": wire.time(key.last_used_at),
    }


def _entry(entry: AuditEntry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "at": wire.time(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "target": entry.target,
        "request_id": entry.request_id,
    }
