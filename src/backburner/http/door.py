"""What every route reaches: the engine, and the readers who hold a connection open."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import HTTPConnection
from starlette.types import Receive

from backburner.engine import telemetry
from backburner.engine.engine import Engine
from backburner.engine.keys import Keys
from backburner.engine.links import Links
from backburner.http.auth import Authenticate
from backburner.http.body import Bodies
from backburner.http.limits import Limits
from backburner.http.problems import TooManyStreams
from backburner.settings import Settings

T = TypeVar("T")

MAX_STREAMS = 1_000
"""How many readers one process serves at once."""


class Streams:
    """The connections that stay open: counted, limited, ended when the server stops."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self.limit = limit
        self.open = 0
        self.stopping = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether there is no place for one more."""
        return self.open >= self.limit

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count one reader for as long as the block runs."""
        if self.is_full:
            raise TooManyStreams(f"{self.limit} streams are open; come back later")
        self.open += 1
        telemetry.sse_clients.inc()
        try:
            yield
        finally:
            self.open -= 1
            telemetry.sse_clients.dec()

    async def run(
        self,
        work: Coroutine[Any, Any, T],
        receive: Receive,
        *beside: Coroutine[Any, Any, None],
    ) -> T | None:
        """Do the work; drop it when the client leaves or the server stops."""
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


@dataclass(frozen=True, slots=True)
class Door:
    """The house as a route sees it."""

    engine: Engine
    settings: Settings
    version: str
    authenticate: Authenticate
    keys: Keys
    links: Links
    limits: Limits | None = None
    """How many requests a key may make; `None`: any number."""
    streams: Streams = field(default_factory=Streams)
    bodies: Bodies = field(default_factory=Bodies)


def door_of(connection: HTTPConnection) -> Door:
    """Return the door that a request came through."""
    door: Door = connection.app.state.door
    return door


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
