"""The state that all routes share: the engine and the open streams."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import HTTPConnection, Request
from starlette.types import Receive

from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.job import Instant
from backburner.engine.access.keys import Keys
from backburner.engine.access.signed_urls import SignedUrls
from backburner.engine.access.signer import Signer
from backburner.engine.engine import Engine
from backburner.engine.observability import telemetry
from backburner.http import body
from backburner.http.auth import Authenticate
from backburner.http.body import MAX_STREAMED, Bodies
from backburner.http.examination import Examination
from backburner.http.limits import Limits
from backburner.http.problems import TooManyStreams
from backburner.http.sessions import Sessions
from backburner.http.shared_answers import SharedAnswers
from backburner.settings import Settings

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

MAX_STREAMS = 1_000
"""How many streams one process serves at once."""
READY_SECONDS = 5.0
"""How long the store may take to answer before it counts as unavailable."""
FRESH_SECONDS = 1.0
"""For how long a result of that check is reused."""
RECHECK_SECONDS = 2.0
"""How often a stream checks that its key is still valid."""


class Streams:
    """
    Counts and limits open connections, and ends them when the server stops.

    A key may have as many streams as are still free. So one key alone gets half of
    them, a second one a quarter, and no key can take all of them.
    """

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self.limit = limit
        self.open = 0
        self._held: Counter[str] = Counter()
        self.stopping = asyncio.Event()

    def has_room(self, key: str | None) -> bool:
        """Return whether a key may open one more; without keys there is one limit."""
        held = 0 if key is None else self._held[key]
        return held < self.limit - self.open

    @contextmanager
    def place(self, key: str | None) -> Iterator[None]:
        """Count one stream while the block runs."""
        if not self.has_room(key):
            raise TooManyStreams(
                f"{self.open} of {self.limit} streams are open, and a key may have as "
                "many as are free; close some, or try again later"
            )
        self.open += 1
        if key is not None:
            self._held[key] += 1
        telemetry.sse_clients.inc()
        try:
            yield
        finally:
            self.open -= 1
            if key is not None:
                self._leave(key)
            telemetry.sse_clients.dec()

    def _leave(self, key: str) -> None:
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]

    async def run(
        self,
        work: Coroutine[Any, Any, T],
        receive: Receive,
        *beside: Coroutine[Any, Any, None],
    ) -> T | None:
        """Run the work; cancel it when the client leaves or the server stops."""
        doing = asyncio.ensure_future(work)
        ends = [
            asyncio.ensure_future(end)
            for end in (self.stopped(), _left(receive), *beside)
        ]
        try:
            await asyncio.wait({doing, *ends}, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                if end.done():
                    end.result()
            return doing.result() if doing.done() else None
        finally:
            for task in (doing, *ends):
                task.cancel()
            await asyncio.gather(doing, *ends, return_exceptions=True)

    async def stopped(self) -> None:
        """Wait until the server stops."""
        await self.stopping.wait()


class Readiness:
    """Checks that the store can be written, once for all concurrent callers."""

    def __init__(self) -> None:
        self._asked_at = -FRESH_SECONDS
        self._answer: asyncio.Future[None] | None = None

    async def check(self, ping: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Raise `StoreUnavailable` unless the store accepts writes, or did just now."""
        now = asyncio.get_running_loop().time()
        if self._answer is None or (
            self._answer.done() and now - self._asked_at >= FRESH_SECONDS
        ):
            self._asked_at = now
            self._answer = asyncio.ensure_future(_pinged(ping))
            # The caller may have been cancelled when the check fails.
            self._answer.add_done_callback(lambda done: done.exception())
        await asyncio.shield(self._answer)


async def _pinged(ping: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        async with asyncio.timeout(READY_SECONDS):
            await ping()
    except TimeoutError:
        raise StoreUnavailable("the store does not answer") from None


@dataclass(frozen=True, slots=True)
class ServerState:
    """The objects that the server shares with its routes."""

    engine: Engine
    settings: Settings
    version: str
    authenticate: Authenticate
    keys: Keys
    signed_urls: SignedUrls
    signer: Signer
    sessions: Sessions
    limits: Limits | None = None
    """The rate limit of keys; `None`: unlimited."""
    unavailable: tuple[str, ...] = ()
    """Applications that are not served because their migration failed."""
    applications: tuple[str, ...] = ()
    """The applications whose routes are served."""
    streams: Streams = field(default_factory=Streams)
    bodies: Bodies = field(default_factory=Bodies)
    """Counts the large bodies that are held in memory."""
    uploads: Bodies = field(default_factory=lambda: Bodies(MAX_STREAMED))
    """Counts the large bodies that are read in chunks."""
    readiness: Readiness = field(default_factory=Readiness)
    examination: Examination = field(default_factory=Examination)
    shared_answers: SharedAnswers = field(default_factory=SharedAnswers)

    async def read(self, request: Request, model: type[M]) -> M:
        """Return a request's JSON body, within the size limit of bodies, as a model."""
        return await body.read(request, model, limit=self.settings.body_limit)

    async def revoked(self, key: str | None, until: Instant | None = None) -> None:
        """Wait until a key is revoked or has expired, or until an instant."""
        while not self.streams.stopping.is_set():
            left = math.inf if until is None else until - self.engine.now()
            if left <= 0:
                return
            # An error of the store says nothing about the key.
            with suppress(StoreUnavailable):
                if key is not None and not await self.keys.is_good(key):
                    return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(RECHECK_SECONDS, left / 1000)):
                    await self.streams.stopping.wait()


def server_state_of(connection: HTTPConnection) -> ServerState:
    """Return the state of the server that handles a request."""
    server_state: ServerState = connection.app.state.server_state
    return server_state


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
