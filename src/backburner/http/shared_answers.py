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
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from backburner.http.auth import Caller

MOST_SECONDS: Final = 5
"""Older answers are not given to anybody."""
MOST_ANSWERS: Final = 200
MAX_AGE: Final = re.compile(r"\bmax-age=(\d{1,6})\b")

Endpoint = Callable[..., Awaitable[Response]]


class _Answer(NamedTuple):
    begun_at: float
    task: asyncio.Task[Response]


class SharedAnswers:
    """The latest answers, each with the time when its read began."""

    def __init__(self) -> None:
        self._latest: dict[Hashable, _Answer] = {}

    async def get(
        self, key: Hashable, seconds: int, read: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Return an answer whose read began at most so many seconds ago."""
        now = asyncio.get_running_loop().time()
        known = self._latest.get(key)
        if known is None or now - known.begun_at > seconds:
            self._forget(now)
            known = _Answer(now, asyncio.ensure_future(_read(read)))
            # Whoever asked may be gone when it fails.
            known.task.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )
            self._latest[key] = known
        try:
            # Whoever asked first may leave before it is done.
            found = await asyncio.shield(known.task)
        finally:
            is_bad = known.task.done() and not _is_good(known.task)
            if is_bad and self._latest.get(key) is known:
                del self._latest[key]
        return _copy(found)

    def _forget(self, now: float) -> None:
        old = [
            k for k, one in self._latest.items() if now - one.begun_at > MOST_SECONDS
        ]
        for key in old:
            del self._latest[key]
        if len(self._latest) >= MOST_ANSWERS:
            self._latest.clear()


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
            (str(request.url), *seen), seconds, lambda: endpoint(request, **arguments)
        )

    return answer


def _accepted(request: Request) -> int:
    """Return how many seconds old an answer may be."""
    found = MAX_AGE.search(request.headers.get("cache-control", ""))
    return min(int(found[1]), MOST_SECONDS) if found else 0
