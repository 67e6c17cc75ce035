"""
Who may follow a stream: the holder of a key, or of a token for that one stream.

Browsers can set no header on an `EventSource` or a `WebSocket`. A stream token goes in
the URL instead (`?token=`): it is valid for minutes, for one job, flow, batch or topic,
and for as long as the key that it was made with.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Final, Literal

from fastapi import Depends, Query
from starlette.requests import HTTPConnection

from backburner.domain.auth.key import DEFAULT_USER
from backburner.domain.jobs.job import Instant, Owner, Tenant
from backburner.engine.access.signer import MAX_TOKEN, Signer
from backburner.http.auth import (
    DEVELOPER,
    Caller,
    admitted,
    caller_of,
    count,
    has_keys,
    refuse_foreign_page,
    remember,
)
from backburner.http.problems import Forbidden, Unauthorized

Kind = Literal["job", "flow", "batch", "topic"]
USUAL: Final = timedelta(minutes=5)
LONGEST: Final = timedelta(hours=1)
SCOPE: Final = "jobs:read"
_PURPOSE: Final = "stream"


@dataclass(frozen=True, slots=True)
class StreamAccess:
    """What a caller may follow; ask for it, and get who then reads."""

    _caller: Caller
    _only: tuple[str, str] | None = None
    """The kind and name of the one thing that a token is for."""

    @property
    def key(self) -> str | None:
        """The id of the key that the streams count for."""
        return self._caller.key

    @property
    def name(self) -> str:
        """Who it is in the log, and whose requests are counted."""
        return self._caller.name

    def following(self, kind: Kind, name: str) -> Caller:
        """Return who reads one thing's stream, if it may."""
        if self._only not in {None, (kind, name)}:
            raise Forbidden("the stream token is for another stream")
        return self._caller

    def everything(self) -> Caller:
        """Return who reads all its streams at once, if it may: not by a token."""
        if self._only is not None:
            raise Forbidden(
                "the stream token is valid for one stream only: name that stream"
            )
        return self._caller


def issue(
    signer: Signer, caller: Caller, kind: Kind, name: str, span: timedelta = USUAL
) -> tuple[str, Instant]:
    """Return a token for one stream, read as this caller reads it, and its end."""
    visible = caller.visible
    user = None if isinstance(visible, Tenant) else visible.user
    claims = {
        "key": caller.key,
        "tenant": visible.tenant,
        "user": user,
        "kind": kind,
        "name": name,
    }
    return signer.sign(_PURPOSE, claims, min(span, LONGEST))


async def _by_token(connection: HTTPConnection, token: str) -> StreamAccess:
    server_state = connection.app.state.server_state
    refuse_foreign_page(connection)
    claims = server_state.signer.read(_PURPOSE, token)
    # A token that a server without keys made is worth nothing where there are keys.
    if claims is None or (claims["key"] is None) == has_keys(connection):
        raise Unauthorized("the stream token is not valid or has expired")
    caller = DEVELOPER
    if claims["key"] is not None:
        key = await server_state.keys.usable(claims["key"])
        if key is None:
            raise Unauthorized("the stream token is not valid or has expired")
        caller = caller_of(key)
    caller = _as_issued(caller, claims["tenant"], claims["user"])
    count(connection, caller)
    remember(connection, caller, until=claims["exp"])
    return StreamAccess(caller, (claims["kind"], claims["name"]))


def _as_issued(caller: Caller, tenant: str, user: str | None) -> Caller:
    """Return the caller as it saw things when the token was made."""
    if user is None:
        return replace(caller, owner=Owner(tenant, DEFAULT_USER))
    return replace(caller, owner=Owner(tenant, user), names_user=True)


async def _admit(
    connection: HTTPConnection,
    token: Annotated[
        str | None,
        Query(
            max_length=MAX_TOKEN,
            description="A stream token, in place of a key.",
        ),
    ] = None,
) -> StreamAccess:
    if token is not None:
        return await _by_token(connection, token)
    return StreamAccess(await admitted(connection, SCOPE))


_admit.scope = SCOPE  # type: ignore[attr-defined]
_admit.takes_tokens = True  # type: ignore[attr-defined]

StreamReader = Annotated[StreamAccess, Depends(_admit)]
"""A parameter of a route that streams: the caller, by its key or by a stream token."""
