"""
Answers that several callers share, because each accepts one that is a little old.

Pages that stay open read the same figures again and again. They say so in
`Cache-Control: max-age=…`, and then one read serves all who see the same. Without that
header an answer is always new.
"""

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from backburner.http.auth import Caller

MOST_SECONDS: Final = 5
"""Older answers are not given to anybody, and not kept."""
MOST_ANSWERS: Final = 200
MOST_OF_ONE: Final = 50
"""How many answers of one owner are kept; the oldest make room for newer ones."""
MOST_BYTES: Final = 16 * 1024**2
"""The size of all answers that are kept."""
LARGEST: Final = 256 * 1024
"""A larger answer is given only to those who wait for it."""
MAX_AGE: Final = re.compile(r"\bmax-age=(\d{1,6})\b")

Endpoint = Callable[..., Awaitable[Response]]


@dataclass(eq=False)
class _Answer:
    owner: Hashable
    begun_at: float
    task: asyncio.Task[Response]
    size: int = 0
    """Of its body; 0 until it is read."""
    timer: asyncio.TimerHandle | None = None


class SharedAnswers:
    """
    The latest answers, each with the time when its read began.

    What they occupy is bounded in bytes, in number and in time.
    """

    def __init__(self) -> None:
        self._latest: dict[Hashable, _Answer] = {}
        """The oldest first."""

    async def get(
        self,
        key: Hashable,
        seconds: int,
        read: Callable[[], Awaitable[Response]],
        *,
        owner: Hashable = None,
    ) -> Response:
        """Return an answer whose read began at most so many seconds ago."""
        loop = asyncio.get_running_loop()
        known = self._latest.get(key)
        if known is None or loop.time() - known.begun_at > seconds:
            known = self._begin(loop, key, owner, read)
        # Whoever asked first may leave before it is done.
        return _copy(await asyncio.shield(known.task))

    def _begin(
        self,
        loop: asyncio.AbstractEventLoop,
        key: Hashable,
        owner: Hashable,
        read: Callable[[], Awaitable[Response]],
    ) -> _Answer:
        self._drop(key)
        self._make_room(owner)
        begun = _Answer(owner, loop.time(), asyncio.ensure_future(_read(read)))
        begun.timer = loop.call_later(MOST_SECONDS, self._drop, key, begun)
        begun.task.add_done_callback(lambda _: self._end(key, begun))
        self._latest[key] = begun
        return begun

    def _end(self, key: Hashable, ended: _Answer) -> None:
        """Keep an answer that was read, or drop it."""
        # Whoever asked may be gone when it fails: its exception is looked at here.
        size = len(ended.task.result().body) if _is_good(ended.task) else None
        if size is None or size > LARGEST:
            self._drop(key, ended)
            return
        ended.size = size
        excess = sum(one.size for one in self._latest.values()) - MOST_BYTES
        for old, one in [*self._latest.items()]:
            if excess <= 0:
                return
            if one.size:
                self._drop(old)
                excess -= one.size

    def _make_room(self, owner: Hashable) -> None:
        """Drop the oldest answer of an owner that has many, or else of all."""
        of_owner = [key for key, one in self._latest.items() if one.owner == owner]
        if len(of_owner) >= MOST_OF_ONE:
            self._drop(of_owner[0])
        elif len(self._latest) >= MOST_ANSWERS:
            self._drop(next(iter(self._latest)))

    def _drop(self, key: Hashable, only: _Answer | None = None) -> None:
        """Forget the answer to a key, if there is one and it is the given one."""
        known = self._latest.get(key)
        if known is None or only not in (None, known):
            return
        del self._latest[key]
        if known.timer is not None:
            known.timer.cancel()


async def _read(read: Callable[[], Awaitable[Response]]) -> Response:
    return await read()


def _is_good(task: asyncio.Task[Response]) -> bool:
    if task.cancelled() or task.exception() is not None:
        return False
    return task.result().status_code == HTTPStatus.OK


def _copy(found: Response) -> Response:
    """Return a response of its own: what sends one adds headers to it."""
    copied = Response(status_code=found.status_code)
    copied.body, copied.raw_headers = found.body, list(found.raw_headers)
    return copied


def shareable(endpoint: Endpoint) -> Endpoint:
    """Let callers who see the same and accept an older answer share one."""

    @functools.wraps(endpoint)
    async def answer(request: Request, **arguments: Any) -> Response:
        seconds = _accepted(request)
        if not seconds:
            return await endpoint(request, **arguments)
        [caller] = (one for one in arguments.values() if isinstance(one, Caller))
        seen = caller.owner, caller.scopes, caller.names_user, caller.sees_traces
        shared: SharedAnswers = request.app.state.server_state.shared_answers
        return await shared.get(
            (request.url.path, request.url.query, *seen),
            seconds,
            lambda: endpoint(request, **arguments),
            owner=caller.owner,
        )

    return answer


def _accepted(request: Request) -> int:
    """Return how many seconds old an answer may be."""
    found = MAX_AGE.search(request.headers.get("cache-control", ""))
    return min(int(found[1]), MOST_SECONDS) if found else 0
