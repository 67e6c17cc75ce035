"""
Who calls, and what they may do.

Every route declares one scope through `require`. In development there are no keys:
whoever reaches the loopback address is the local user. So that a web page cannot be
that user too, a request must name us by an address or as localhost, and must not come
from a page of another origin.
"""

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import Depends
from starlette.requests import HTTPConnection

from backburner.domain.job import Owner
from backburner.engine.submission import LOCAL
from backburner.http.problems import Forbidden, ForeignOrigin

PUBLIC: Final = "public"
SCOPES: Final = frozenset(
    {
        PUBLIC,
        "jobs:read",
        "jobs:write",
        "dead-letters:read",
        "dead-letters:retry",
        "queues:read",
        "metrics:read",
    }
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose jobs a request may see, and what it may do with them."""

    owner: Owner
    scopes: frozenset[str]


Authenticate = Callable[[HTTPConnection], Awaitable[Caller]]

DEVELOPER: Final = Caller(LOCAL, SCOPES)
NOBODY: Final = Caller(Owner("", ""), frozenset({PUBLIC}))


async def as_developer(connection: HTTPConnection) -> Caller:
    """Take whoever is on this machine for the local user."""
    if not _is_local(connection.headers.get("host", "")):
        raise ForeignOrigin("ask by an address or as localhost: there are no keys here")
    return DEVELOPER


def require(scope: str) -> Any:
    """Admit only callers that hold this scope; the parameter gets the `Caller`."""
    if scope not in SCOPES:
        raise ValueError(f"{scope!r} is not a scope")

    async def admit(connection: HTTPConnection) -> Caller:
        if scope == PUBLIC:
            return NOBODY
        refuse_foreign_page(connection)
        caller: Caller = await connection.app.state.door.authenticate(connection)
        if scope not in caller.scopes:
            raise Forbidden(f"this needs the scope {scope}")
        return caller

    admit.scope = scope  # type: ignore[attr-defined]
    return Depends(admit)


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
