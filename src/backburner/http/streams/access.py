"""
Access to streams: by an API key, or by a token for one stream.

Browsers cannot set headers on an `EventSource` or a `WebSocket`. A stream token is
passed in the URL instead (`?token=`). It is valid for minutes, for one job, flow, batch
or topic, and only while the key that created it is valid.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Final, Literal

from fastapi import Depends, Query
from starlette.requests import HTTPConnection

from backburner.domain.auth.access import DEFAULT_USER
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
    """The streams that a caller may read."""

    _caller: Caller
    _only: tuple[str, str] | None = None
    """The kind and name of the subject that a token is for; `None` with a key."""

    @property
    def key(self) -> str | None:
        """The id of the key that the streams are counted for."""
        return self._caller.key

    @property
    def name(self) -> str:
        """The name in the log, for which requests are counted."""
        return self._caller.name

    def following(self, kind: Kind, name: str) -> Caller:
        """Return the caller for one stream; raise `Forbidden` if it is not allowed."""
        if self._only not in {None, (kind, name)}:
            raise Forbidden("the stream token is for another stream")
        return self._caller

    def everything(self) -> Caller:
        """Return the caller for the stream of all its events; not with a token."""
        if self._only is not None:
            raise Forbidden(
                "the stream token is valid for one stream only: name that stream"
            )
        return self._caller


def issue(
    signer: Signer, caller: Caller, kind: Kind, name: str, span: timedelta = USUAL
) -> tuple[str, Instant]:
    """Return a token for one stream with this caller's permissions, and its expiry."""
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
    # Tokens of a server without keys are not valid on one with keys, and vice versa.
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
    """Return the caller with the owner of the time when the token was created."""
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
"""The parameter of a streaming route: the access by key or by stream token."""
