"""`Prefer: wait=N`: the response is delayed until a job has ended."""

import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar

from fastapi import Header
from starlette.requests import Request

from backburner.http.auth import key_of
from backburner.http.problems import Unauthorized
from backburner.http.state import ServerState, server_state_of

T = TypeVar("T")

MAX_WAIT: Final = 60
_WAIT: Final = re.compile(
    r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?(?:$|[,;\s])", re.IGNORECASE
)

Prefer = Annotated[
    str | None,
    Header(
        description="`wait=N`: answer when it ends, or after N seconds (≤ 60).",
        examples=["wait=10"],
    ),
]
PREFER: Final = {
    "name": "Prefer",
    "in": "header",
    "description": "`wait=N`: answer 200 if it ends within N seconds.",
    "schema": {"type": "string"},
    "example": "wait=10",
}
APPLIED: Final = {
    "Preference-Applied": {
        "description": "The wait that was granted.",
        "schema": {"type": "string"},
    }
}


class FindOrWait(NamedTuple, Generic[T]):
    """Functions that return a resource: as it is now, or once it has ended."""

    find: Callable[[], Awaitable[T]]
    wait: Callable[[int], Coroutine[Any, Any, T]]


async def found(
    request: Request,
    prefer: str | None,
    find_or_wait: FindOrWait[T],
    told: dict[str, str],
) -> T:
    """
    Return a resource once it has ended; at once without `Prefer`, or after its time.

    `Preference-Applied` is set only if the wait was granted.
    """
    seconds = wait_of(prefer)
    if seconds is None:
        return await find_or_wait.find()
    if server_state_of(request).streams.has_room(key_of(request.scope)):
        told["Preference-Applied"] = f"wait={seconds}"
    return await awaited(request, seconds, find_or_wait)


async def awaited(request: Request, seconds: int, find_or_wait: FindOrWait[T]) -> T:
    """Return a resource once it has ended, or after some seconds; at once if full."""
    server_state, key = server_state_of(request), key_of(request.scope)
    streams = server_state.streams
    if streams.has_room(key):
        with streams.place(key):
            ended = await streams.run(
                find_or_wait.wait(seconds),
                request.receive,
                _expelled(server_state, key),
            )
        if ended is not None:
            return ended
    # No place is free, or the client has left, or the server is stopping.
    return await find_or_wait.find()


async def _expelled(server_state: ServerState, key: str | None) -> None:
    await server_state.revoked(key)
    if not server_state.streams.stopping.is_set():
        raise Unauthorized("the API key was revoked or has expired")


def wait_of(prefer: str | None) -> int | None:
    """Return the wait in seconds that the caller prefers, if any."""
    match = None if prefer is None else _WAIT.search(prefer)
    return None if match is None else min(int(match[1]), MAX_WAIT)
