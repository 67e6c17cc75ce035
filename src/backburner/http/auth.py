"""
Authenticates callers and checks their scopes.

Every route declares one scope through `require`. A caller shows an API key in
`Authorization: Bearer`, never in a URL, or has logged in with one (`sessions.py`); a
stream may be opened by a token for it (`stream_access.py`). A caller acts as the key's
user; a key without one acts as user 1 of its tenant, or with the scope `users:act` as
whom `X-User-Id` names. With `tenants:act`, `X-Tenant-Id` names the tenant. What each
scope reaches is decided in `domain/auth/access.py`.

In development there are no keys: whoever reaches the loopback address is user 1. So
that a web page cannot be that user too, a request must name us by an address or as
localhost, and must not come from a page of another origin.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.types import Scope

from backburner.domain.auth import access
from backburner.domain.auth.access import Grant
from backburner.domain.auth.key import DEFAULT_USER, ApiKey
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
USER_HEADER: Final = "x-user-id"
TENANT_HEADER: Final = "x-tenant-id"
SCOPES: Final = access.SCOPES | {PUBLIC}
_KEY: Final = "key"
"""Under which the id of the caller's key is kept, in the request's state."""
_UNTIL: Final = "until"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose jobs a request may see, and what it may do with them."""

    owner: Owner
    scopes: frozenset[str]
    name: str = "development"
    """Who it is in the log: a key's id."""
    key: str | None = None
    """The key's id, if it shows one."""
    grant: Grant | None = None
    """What its key gives; `None`: there are no keys, and it may do everything."""
    names_user: bool = False
    """Whether it asked for the things of one user by `X-User-Id`."""

    @property
    def visible(self) -> Visibility:
        """Whose things it sees: its own, or with `tenant:read` the whole tenant's."""
        return (
            self.owner if self.names_user else access.visible(self.owner, self.scopes)
        )

    @property
    def sees_traces(self) -> bool:
        """Whether it sees the stacks of failed attempts, in the code's own words."""
        is_developer = self.grant is None and self.scopes == DEVELOPER.scopes
        return access.READ_TENANT in self.scopes or is_developer

    @property
    def held(self) -> Grant:
        """What it may pass on to keys that it makes, in the tenant that it acts in."""
        user = None if self.grant is None else self.grant.user
        ends = None if self.grant is None else self.grant.expires_at
        return Grant(self.owner.tenant, self.scopes, user, ends)


Authenticate = Callable[[HTTPConnection], Awaitable[Caller]]

# Not `tenant:read`: a developer is user 1, and names another one by `X-User-Id`.
DEVELOPER: Final = Caller(LOCAL, SCOPES - {access.READ_TENANT})
NOBODY: Final = Caller(Owner("", ""), frozenset({PUBLIC}))


async def as_developer(connection: HTTPConnection) -> Caller:
    """Take whoever is on this machine for the local user."""
    if not _is_local(connection.headers.get("host", "")):
        raise ForeignOrigin(
            "this server has no API keys: call it by its IP address or as localhost"
        )
    return DEVELOPER


def by_key(found: Keys) -> Authenticate:
    """Take whoever shows a good key for its holder."""

    async def authenticate(connection: HTTPConnection) -> Caller:
        shown = connection.headers.get("authorization")
        if shown is None:
            key = await _key_of_session(connection, found)
        else:
            scheme, _, text = shown.partition(" ")
            is_key = scheme.lower() == "bearer"
            key = await found.check(text.strip()) if is_key else None
        if key is None:
            raise Unauthorized("send a valid API key as Authorization: Bearer …")
        return caller_of(key)

    return authenticate


def caller_of(key: ApiKey) -> Caller:
    """Return whoever holds a key."""
    grant = key.grant
    return Caller(key.owner, grant.scopes, key.id, key.id, grant)


async def _key_of_session(connection: HTTPConnection, keys: Keys) -> ApiKey | None:
    """Return the key that a browser logged in with, if this request may use it."""
    session: Session | None = connection.app.state.server_state.sessions.find(
        connection
    )
    key = None if session is None else await keys.usable(session.key)
    if session is not None and key is not None:
        check_csrf(connection, session)
    return key


def check_shares(caller: Caller, shares: Iterable[str | None]) -> None:
    """Refuse another's share, or any number of one's own, unless the key may act."""
    own = (None, caller.owner.user)
    if access.ACT not in caller.scopes and any(share not in own for share in shares):
        raise Forbidden(f"naming another share requires the scope {access.ACT}")


def actor_of(
    connection: HTTPConnection, caller: Caller, tenant: str | None = None
) -> Actor:
    """
    Return who acts, and in which tenant, for the log of administrators' acts.

    `tenant` is the one acted upon; without it, the one that the caller acts in.
    """
    acted_in = caller.owner.tenant if tenant is None else tenant
    home = acted_in if caller.grant is None else caller.grant.tenant
    name = caller.name if home == acted_in else f"{home}/{caller.name}"
    return Actor(name, acted_in, request_id_of(connection))


def require(scope: str, *, or_else: str | None = None) -> Any:
    """
    Admit only callers that hold this scope; the parameter gets the `Caller`.

    With `or_else`, those that hold that one are admitted as well.
    """
    if scope not in SCOPES:
        raise ValueError(f"{scope!r} is not a scope")

    async def admit(connection: HTTPConnection) -> Caller:
        if scope == PUBLIC:
            return NOBODY
        return await admitted(connection, scope, or_else)

    admit.scope = scope  # type: ignore[attr-defined]
    return Depends(admit)


async def admitted(
    connection: HTTPConnection, scope: str, or_else: str | None = None
) -> Caller:
    """Return who calls, if it holds this scope, or the other."""
    refuse_foreign_page(connection)
    caller: Caller = await connection.app.state.server_state.authenticate(connection)
    count(connection, caller)
    remember(connection, caller)
    if scope not in caller.scopes and or_else not in caller.scopes:
        raise Forbidden(f"this requires the scope {scope}")
    tenant = connection.headers.get(TENANT_HEADER)
    if tenant is not None:
        caller = _acting_in(tenant, caller)
    user = connection.headers.get(USER_HEADER)
    return caller if user is None else acting_as(user, caller)


def count(connection: HTTPConnection, caller: Caller) -> None:
    """Count a request of a key, and refuse one too many."""
    limits = connection.app.state.server_state.limits
    if limits is not None:
        limits.count(caller.name, connection.scope)


def remember(
    connection: HTTPConnection, caller: Caller, *, until: Instant | None = None
) -> None:
    """Keep for how long a stream of this caller may stay open."""
    connection.scope["state"][_KEY] = caller.key
    connection.scope["state"][_UNTIL] = until


def has_keys(connection: HTTPConnection) -> bool:
    """Say whether the server knows its callers by keys; in development it does not."""
    return connection.app.state.server_state.authenticate is not as_developer


def key_of(scope: Scope) -> str | None:
    """Return the id of the key that a request showed."""
    key: str | None = scope["state"].get(_KEY)
    return key


def until_of(scope: Scope) -> Instant | None:
    """Return when what a request showed expires, if its key may live longer."""
    until: Instant | None = scope["state"].get(_UNTIL)
    return until


def takes_tokens(route: Any) -> bool:
    """Say whether a route may be opened by a stream token."""
    dependencies = getattr(getattr(route, "dependant", None), "dependencies", ())
    return any(getattr(found.call, "takes_tokens", False) for found in dependencies)


def scope_of(route: Any) -> str | None:
    """Return the scope that a route declares."""
    dependencies = getattr(getattr(route, "dependant", None), "dependencies", ())
    scopes = (getattr(dependency.call, "scope", None) for dependency in dependencies)
    return next((scope for scope in scopes if scope is not None), None)


def acting_as(user: str, caller: Caller) -> Caller:
    """Return a caller as it acts for a user of its tenant; needs `users:act`."""
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
    """Refuse what a browser sends from a page that is not ours."""
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
