"""A TCP proxy that simulates network failures in front of a server."""

import asyncio
import random
import socket
import struct
from contextlib import suppress
from ssl import SSLContext
from types import TracebackType
from typing import Self

PIECE = 65_536
AT_ONCE = struct.pack("ii", 1, 0)
"""A linger time of zero: closing such a socket resets the connection."""


class Link:
    """A client's connection, and the one to the server that belongs to it."""

    def __init__(self, *ends: asyncio.StreamWriter) -> None:
        self._ends = ends
        self.is_orphaned = False

    def close(self) -> None:
        """Close both connections."""
        for end in self._ends:
            end.close()

    def reset(self) -> None:
        """Reset both connections."""
        for end in self._ends:
            found = end.get_extra_info("socket")
            with suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            end.transport.abort()


class Proxy:
    """
    Forwards bytes to a server, with delays, interruptions or not at all.

    Faults may be set at any time and apply to all connections; `heal` removes them. The
    same seed gives the same random numbers, but the network decides who draws first.
    """

    def __init__(self, host: str, port: int, *, seed: int = 0) -> None:
        self._target = (host, port)
        self._dice = random.Random(seed)
        self._links: set[Link] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._listener: asyncio.Server | None = None
        self.port = 0
        """The port on the loopback address; set by `start`."""
        self.delays = (0.0, 0.0)
        """The minimum and maximum delay of each piece, in seconds."""
        self.resets = 0.0
        """The probability that a reply is cut off and the connection is reset."""
        self.cuts = 0
        """How many connections were reset so far."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def start(self, ssl: SSLContext | None = None) -> None:
        """Listen on the same port as before."""
        if self._listener is None:
            self._listener = await asyncio.start_server(
                self._connect, "127.0.0.1", self.port, ssl=ssl
            )
            self.port = self._listener.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Stop: connections are reset, and none is accepted."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.break_all()

    def break_all(self) -> None:
        """Reset all current connections."""
        self.cuts += len(self._links)
        for link in self._links:
            link.reset()
        self._links.clear()

    def freeze(self) -> None:
        """Forward nothing without an error; new connections are accepted and wait."""
        self._passing.clear()

    def orphan_all(self) -> None:
        """Make the other end of every connection vanish for good without an error."""
        for link in self._links:
            link.is_orphaned = True

    def heal(self) -> None:
        """Forward everything; held-back bytes are sent, as with TCP."""
        self.delays = (0.0, 0.0)
        self.resets = 0.0
        self._passing.set()

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            replies, requests = await asyncio.open_connection(*self._target)
        except OSError:
            Link(writer).reset()
            return
        link = Link(writer, requests)
        self._links.add(link)
        for pump in (
            self._pump(link, reader, requests, is_reply=False),
            self._pump(link, replies, writer, is_reply=True),
        ):
            task = asyncio.create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(
        self,
        link: Link,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        *,
        is_reply: bool,
    ) -> None:
        try:
            while piece := await source.read(PIECE):
                await self._hold_up()
                if link.is_orphaned:
                    continue
                if is_reply and self._dice.random() < self.resets:
                    target.write(piece[: self._dice.randrange(len(piece))])
                    self._forget(link)
                    return
                target.write(piece)
                await target.drain()
        except OSError:
            link.reset()
        await self._passing.wait()
        if not link.is_orphaned:
            link.close()
            self._links.discard(link)

    async def _hold_up(self) -> None:
        await self._passing.wait()
        if self.delays[1]:
            late = self._dice.uniform(*self.delays)
            await asyncio.sleep(late)  # noqa: TID251 - this is the fault

    def _forget(self, link: Link) -> None:
        self.cuts += 1
        self._links.discard(link)
        link.reset()
