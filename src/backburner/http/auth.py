"""
Who calls, and what they may do.

Every route declares one scope through `require`. A caller shows an API key in
`Authorization: Bearer`, never in a URL. It acts as the key's user; a key without one
acts as user 1 of its tenant, or with the scope `users:act` as whom `X-User-Id` names.

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

from backburner.domain import key as keys
from backburner.domain.errors import FieldError, InvalidInput
from backburner.domain.job import Owner
from backburner.engine.keys import Actor, Keys, is_user
from backburner.engine.submission import LOCAL
from backburner.http.problems import (
    Forbidden,
    ForeignOrigin,
    Unauthorized,
    request_id_of,
)

PUBLIC: Final = "public"
USER_HEADER: Final = "x-user-id"
SCOPES: Final = keys.SCOPES | {PUBLIC}


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose jobs a request may see, and what it may do with them."""

    owner: Owner
    scopes: frozenset[str]
    name: str = "development"
    """Who it is in the log: a key's id."""
    key: str | None = None
    """The key's id, if it shows one."""


Authenticate = Callable[[HTTPConnection], Awaitable[Caller]]

DEVELOPER: Final = Caller(LOCAL, SCOPES)
NOBODY: Final = Caller(Owner("", ""), frozenset({PUBLIC}))


async def as_developer(connection: HTTPConnection) -> Caller:
    """Take whoever is on this machine for the local user."""
    if not _is_local(connection.headers.get("host", "")):
        raise ForeignOrigin("ask by an address or as localhost: there are no keys here")
    return DEVELOPER


def by_key(found: Keys) -> Authenticate:
    """Take whoever shows a good key for its holder."""

    async def authenticate(connection: HTTPConnection) -> Caller:
        scheme, _, text = connection.headers.get("authorization", "").partition(" ")
        key = await found.check(text.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            raise Unauthorized("send a good API key as Authorization: Bearer …")
        return Caller(key.owner, key.scopes, key.id, key.id)

    return authenticate


def check_shares(caller: Caller, shares: Iterable[str | None]) -> None:
    """Refuse another's share, or any number of one's own, unless the key may act."""
    own = (None, caller.owner.user)
    if keys.ACT not in caller.scopes and any(share not in own for share in shares):
        raise Forbidden(f"to name another share needs the scope {keys.ACT}")


def actor_of(connection: HTTPConnection, caller: Caller) -> Actor:
    """Return who acts, as the log of administrators' acts names them."""
    return Actor(caller.name, caller.owner.tenant, request_id_of(connection))


def require(scope: str) -> Any:
    """Admit only callers that hold this scope; the parameter gets the `Caller`."""
    if scope not in SCOPES:
        raise ValueError(f"{scope!r} is not a scope")

    async def admit(connection: HTTPConnection) -> Caller:
        if scope == PUBLIC:
            return NOBODY
        refuse_foreign_page(connection)
        door = connection.app.state.door
        caller: Caller = await door.authenticate(connection)
        if door.limits is not None:
            door.limits.count(caller.name, connection.scope)
        if scope not in caller.scopes:
            raise Forbidden(f"this needs the scope {scope}")
        user = connection.headers.get(USER_HEADER)
        return caller if user is None else _acting_as(user, caller)

    admit.scope = scope  # type: ignore[attr-defined]
    return Depends(admit)


def scope_of(route: Any) -> str | None:
    """Return the scope that a route declares."""
    dependencies = getattr(getattr(route, "dependant", None), "dependencies", ())
    scopes = (getattr(dependency.call, "scope", None) for dependency in dependencies)
    return next((scope for scope in scopes if scope is not None), None)


def _acting_as(user: str, caller: Caller) -> Caller:
    if keys.ACT not in caller.scopes:
        raise Forbidden(f"to name a user needs the scope {keys.ACT}")
    if not is_user(user):
        told = FieldError("header.X-User-Id", "must be 1 to 200 visible characters")
        raise InvalidInput("the user is not valid", [told])
    return replace(caller, owner=Owner(caller.owner.tenant, user))


def refuse_foreign_page(connection: HTTPConnection) -> None:
    """Refuse what a browser sends from a page that is not ours."""
    origin = connection.headers.get("origin")
    if origin is None:
        return
    if origin.partition("://")[2] != connection.headers.get("host"):
        raise ForeignOrigin("pages of another origin may not call this server")


@lru_cache(maxsize=256)
def _is_local(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name.endswith(".localhost") or name == "localhost" or _is_address(name)
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    return bool(ipaddress.ip_address(name))
