"""What the tests do to a broker from outside, and a proxy that most of it needs."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from ssl import SSLContext
from typing import Protocol

from backburner.ports.broker import Broker, Letter

CHUNK = 65_536


class Server(Protocol):
    """The message broker, seen from outside."""

    def broker(self) -> Broker:
        """Make one more client, as another process would; it is not opened."""
        ...

    async def put(self, queue: str, body: bytes, *, name: str = "") -> None:
        """Put a message on a queue that is there, as a foreign program would."""
        ...

    async def dead_letters(self, queue: str) -> Sequence[Letter]:
        """Return a queue's dead letters, as the broker's own tools show them."""
        ...

    async def kept_for(self, queue: str) -> timedelta:
        """Return how long the broker keeps a dead letter of that queue."""
        ...

    async def kill(self, broker: Broker) -> None:
        """Let a client be gone without a word, as if its process had died."""
        ...

    async def cut(self) -> None:
        """Close every connection from the server's side."""
        ...

    async def stop(self) -> None:
        """Be gone: connections are cut and none is taken."""
        ...

    async def start(self) -> None:
        """Be back."""
        ...

    async def freeze(self) -> None:
        """Swallow every byte and close nothing, until `start`."""
        ...


class Proxied:
    """A TCP proxy before a server: the hooks that are the same for every broker."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self.port = 0
        """Where it listens, on the loopback; set by `start`."""

    async def start(self, ssl: SSLContext | None = None) -> None:
        """Listen, at the same port as before."""
        self._flowing.set()
        if self._listener is None:
            self._listener = await asyncio.start_server(
                self._pass_on, "127.0.0.1", self.port, ssl=ssl
            )
            self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Cut every connection and take none."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self.cut()

    async def cut(self) -> None:
        """Cut every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def freeze(self) -> None:
        """Pass nothing on and close nothing."""
        self._flowing.clear()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            there = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, there[1]}
        self._writers |= both
        await asyncio.gather(self._pump(reader, there[1]), self._pump(there[0], writer))
        self._writers -= both

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                await self._flowing.wait()
                writer.write(chunk)
                await writer.drain()
        writer.close()
