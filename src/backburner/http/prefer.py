"""`Prefer: wait=N`: the response is delayed until a job has ended."""

import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar

from fastapi import Header
from starlette.requests import Request

from backburner.http.auth import key_of
from backburner.http.door import Door, door_of
from backburner.http.problems import Unauthorized

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


class Patience(NamedTuple, Generic[T]):
    """Two ways to one thing: as it is now, or when it has ended."""

    find: Callable[[], Awaitable[T]]
    wait: Callable[[int], Coroutine[Any, Any, T]]


async def found(
    request: Request, prefer: str | None, patience: Patience[T], told: dict[str, str]
) -> T:
    """
    Return something when it ends; as it is if nobody waits, or time is over.

    `Preference-Applied` is told only if it was waited for.
    """
    seconds = wait_of(prefer)
    if seconds is None:
        return await patience.find()
    if door_of(request).streams.has_room(key_of(request.scope)):
        told["Preference-Applied"] = f"wait={seconds}"
    return await awaited(request, seconds, patience)


async def awaited(request: Request, seconds: int, patience: Patience[T]) -> T:
    """Return something when it ends, or after some seconds; at once without a place."""
    door, key = door_of(request), key_of(request.scope)
    streams = door.streams
    if streams.has_room(key):
        with streams.place(key):
            ended = await streams.run(
                patience.wait(seconds), request.receive, _expelled(door, key)
            )
        if ended is not None:
            return ended
    # There is no place, or client or server are gone.
    return await patience.find()


async def _expelled(door: Door, key: str | None) -> None:
    await door.revoked(key)
    if not door.streams.stopping.is_set():
        raise Unauthorized("the API key was revoked or has expired")


def wait_of(prefer: str | None) -> int | None:
    """Return how long the caller would wait, if it says so."""
    said = None if prefer is None else _WAIT.search(prefer)
    return None if said is None else min(int(said[1]), MAX_WAIT)
