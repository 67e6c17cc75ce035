"""
Authenticates callers and checks their scopes.

Every route declares a scope through `require`. A caller sends an API key in
`Authorization: Bearer`, never in a URL, or has logged in with one (`sessions.py`); a
stream can also be opened with a token (`stream_access.py`). A caller acts as the key's
user. A key without one acts as user 1 of its tenant or, with the scope `users:act`, as
the user in `X-User-Id`. With `tenants:act`, `X-Tenant-Id` selects the tenant. What each
scope allows is decided in `domain/auth/access.py`.

In development there are no keys: every caller on the loopback address is user 1. So
that web pages cannot act as that user, a request must address the server by IP address
or as localhost, and must not come from a page of another origin.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.types import Scope

from backburner.domain.auth import access
from backburner.domain.auth.access import DEFAULT_USER, Grant
from backburner.domain.auth.key import ApiKey
from backburner.domain.errors import FieldError, InvalidInput
from backburner.domain.jobs.job import Instant, Owner, Visibility
from backburner.engine.access.keys import Actor, Keys, is_user
from backburner.engine.submit.submission import LOCAL
from backburner.http.problems import (
    Forbidden,
    ForeignOrigin,
    Unauthorized,
    request_id_of,
)
from backburner.http.sessions import Session, check_csrf

PUBLIC: Final = "public"
ANY: Final = "any"
"""In place of a scope: any valid key, whatever its scopes."""
USER_HEADER: Final = "x-user-id"
TENANT_HEADER: Final = "x-tenant-id"
SCOPES: Final = access.SCOPES | {PUBLIC}
_KEY: Final = "key"
"""The name in the request's state under which the caller's key id is stored."""
_UNTIL: Final = "until"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: owner, scopes and key."""

    owner: Owner
    scopes: frozenset[str]
    name: str = "development"
    """The name in the audit log: the key's id."""
    key: str | None = None
    """The key's id, if it sent one."""
    grant: Grant | None = None
    """The permissions of its key; `None` in development: everything is allowed."""
    names_user: bool = False
    """Whether it selected a user with `X-User-Id`."""
    until: Instant | None = None
    """When its session ends, if it has one."""

    @property
    def own(self) -> Owner:
        """The owner as which its key acts if a request names no other."""
        if self.grant is None:
            return LOCAL
        return Owner(self.grant.tenant, self.grant.user or DEFAULT_USER)

    @property
    def visible(self) -> Visibility:
        """The rows that it sees: its own, or with `tenant:read` those of its tenant."""
        return (
            self.owner if self.names_user else access.visible(self.owner, self.scopes)
        )

    @property
    def changeable(self) -> Visibility:
        """The rows that it changes: its own, or with `users:act` all that it sees."""
        return self.visible if access.ACT in self.scopes else self.owner

    @property
    def sees_traces(self) -> bool:
        """Whether it sees stack traces of failed attempts."""
        is_developer = self.grant is None and self.scopes == DEVELOPER.scopes
        return access.READ_TENANT in self.scopes or is_developer

    @property
    def held(self) -> Grant:
        """What it may pass on to new keys in its current tenant."""
        user = None if self.grant is None else self.grant.user
        ends = None if self.grant is None else self.grant.expires_at
        return Grant(self.owner.tenant, self.scopes, user, ends)


Authenticate = Callable[[HTTPConnection], Awaitable[Caller]]

# Without `tenant:read`: a developer is user 1, or selects one with `X-User-Id`.
DEVELOPER: Final = Caller(LOCAL, SCOPES - {access.READ_TENANT})
NOBODY: Final = Caller(Owner("", ""), frozenset({PUBLIC}))


async def as_developer(connection: HTTPConnection) -> Caller:
    """Authenticate a local caller as the development user."""
    if not _is_local(connection.headers.get("host", "")):
        raise ForeignOrigin(
            "this server has no API keys: call it by its IP address or as localhost"
        )
    return DEVELOPER


def by_key(found: Keys) -> Authenticate:
    """Return a function that authenticates callers by their API key."""

    async def authenticate(connection: HTTPConnection) -> Caller:
        shown = connection.headers.get("authorization")
        if shown is None:
            caller = await _caller_of_session(connection, found)
        else:
            scheme, _, text = shown.partition(" ")
            is_key = scheme.lower() == "bearer"
            key = await found.check(text.strip()) if is_key else None
            caller = None if key is None else caller_of(key)
        if caller is None:
            raise Unauthorized("send a valid API key as Authorization: Bearer …")
        return caller

    return authenticate


def caller_of(key: ApiKey) -> Caller:
    """Return the caller that a key stands for."""
    grant = key.grant
    return Caller(key.owner, grant.scopes, key.id, key.id, grant)


async def _caller_of_session(connection: HTTPConnection, keys: Keys) -> Caller | None:
    """Return the caller that a browser is logged in as, if this request may use it."""
    session: Session | None = connection.app.state.server_state.sessions.find(
        connection
    )
    key = None if session is None else await keys.usable(session.key)
    if session is None or key is None:
        return None
    check_csrf(connection, session)
    return replace(caller_of(key), until=session.expires_at)


def check_shares(caller: Caller, shares: Iterable[str | None]) -> None:
    """Refuse the shares of other users, unless the key may act as them."""
    own = (None, caller.owner.user)
    if access.ACT not in caller.scopes and any(share not in own for share in shares):
        raise Forbidden(f"naming another share requires the scope {access.ACT}")


def actor_of(
    connection: HTTPConnection, caller: Caller, tenant: str | None = None
) -> Actor:
    """
    Return who acts, and in which tenant, for the audit log.

    `tenant` is the one acted upon; by default, the caller's current tenant.
    """
    acted_in = caller.owner.tenant if tenant is None else tenant
    home = acted_in if caller.grant is None else caller.grant.tenant
    name = caller.name if home == acted_in else f"{home}/{caller.name}"
    return Actor(name, acted_in, request_id_of(connection))


def require(scope: str, *, or_else: str | None = None) -> Any:
    """
    Admit only callers with this scope, or any with `ANY`; passes on the `Caller`.

    With `or_else`, callers with that scope are admitted as well.
    """
    if scope not in SCOPES | {ANY}:
        raise ValueError(f"{scope!r} is not a scope")

    async def admit(connection: HTTPConnection) -> Caller:
        if scope == PUBLIC:
            return NOBODY
        return await admitted(connection, scope, or_else)

    admit.scope = scope  # type: ignore[attr-defined]
    return Depends(admit)


Reader = Annotated[Caller, require("jobs:read")]
Writer = Annotated[Caller, require("jobs:write")]
Retrier = Annotated[Caller, require("dead-letters:retry")]
Operator = Annotated[Caller, require("queues:read")]
AnyKey = Annotated[Caller, require(ANY)]
Anybody = Annotated[Caller, require(PUBLIC)]


async def admitted(
    connection: HTTPConnection, scope: str, or_else: str | None = None
) -> Caller:
    """Return the caller of a request; raise `Forbidden` unless it has a scope."""
    refuse_foreign_page(connection)
    caller: Caller = await connection.app.state.server_state.authenticate(connection)
    count(connection, caller)
    remember(connection, caller, until=caller.until)
    if scope != ANY and caller.scopes.isdisjoint({scope, or_else}):
        raise Forbidden(f"this requires the scope {scope}")
    tenant = connection.headers.get(TENANT_HEADER)
    if tenant is not None:
        caller = _acting_in(tenant, caller)
    user = connection.headers.get(USER_HEADER)
    return caller if user is None else acting_as(user, caller)


def count(connection: HTTPConnection, caller: Caller) -> None:
    """Count a request against the key's rate limit; refuse it if it is exceeded."""
    limits = connection.app.state.server_state.limits
    if limits is not None:
        limits.count(caller.name, connection.scope)


def remember(
    connection: HTTPConnection, caller: Caller, *, until: Instant | None = None
) -> None:
    """Store until when a stream of this caller may stay open."""
    connection.scope["state"][_KEY] = caller.key
    connection.scope["state"][_UNTIL] = until


def has_keys(connection: HTTPConnection) -> bool:
    """Return whether the server uses API keys; in development it does not."""
    return connection.app.state.server_state.authenticate is not as_developer


def key_of(scope: Scope) -> str | None:
    """Return the id of the key that was sent with a request."""
    key: str | None = scope["state"].get(_KEY)
    return key


def until_of(scope: Scope) -> Instant | None:
    """Return the expiry of a session or stream token, if it is before the key's."""
    until: Instant | None = scope["state"].get(_UNTIL)
    return until


def takes_tokens(route: Any) -> bool:
    """Return whether a route can be opened with a stream token."""
    dependencies = getattr(getattr(route, "dependant", None), "dependencies", ())
    return any(getattr(found.call, "takes_tokens", False) for found in dependencies)


def scope_of(route: Any) -> str | None:
    """Return the scope that a route declares."""
    dependencies = getattr(getattr(route, "dependant", None), "dependencies", ())
    scopes = (getattr(dependency.call, "scope", None) for dependency in dependencies)
    return next((scope for scope in scopes if scope is not None), None)


def acting_as(user: str, caller: Caller) -> Caller:
    """Return a caller that acts for a user of its tenant; needs `users:act`."""
    if access.ACT not in caller.scopes:
        raise Forbidden(f"acting as another user requires the scope {access.ACT}")
    if not is_user(user):
        told = FieldError("header.X-User-Id", "must be 1 to 200 visible characters")
        raise InvalidInput("the user is not valid", [told])
    return replace(caller, owner=Owner(caller.owner.tenant, user), names_user=True)


def _acting_in(tenant: str, caller: Caller) -> Caller:
    if access.ACT_ACROSS not in caller.scopes:
        raise Forbidden(
            f"acting in another tenant requires the scope {access.ACT_ACROSS}"
        )
    if not is_user(tenant):
        told = FieldError("header.X-Tenant-Id", "must be 1 to 200 visible characters")
        raise InvalidInput("the tenant is not valid", [told])
    return replace(caller, owner=Owner(tenant, DEFAULT_USER))


def refuse_foreign_page(connection: HTTPConnection) -> None:
    """Refuse requests that a browser sends from a page of another origin."""
    origin = connection.headers.get("origin")
    if origin is None:
        return
    if origin.partition("://")[2] == connection.headers.get("host"):
        return
    if origin not in connection.app.state.server_state.settings.cors_origins:
        raise ForeignOrigin(
            "pages of this origin may not call this server: the operator lists allowed "
            "origins in BACKBURNER_CORS_ORIGINS"
        )


@lru_cache(maxsize=256)
def _is_local(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name.endswith(".localhost") or name == "localhost" or _is_address(name)
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    return bool(ipaddress.ip_address(name))
