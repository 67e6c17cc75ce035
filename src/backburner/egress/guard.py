"""
The network under the HTTP stack: judges addresses, and counts what is read.

A name is resolved once, here, and the connection goes to an address that was judged:
nothing is left to resolve again. The TLS name and the Host header stay the URL's.
"""

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from typing import Any, Final

import httpcore2

from backburner.domain.webhooks.address import Reach, plain
from backburner.egress.resolver import Resolve
from backburner.egress.wire import connect

MOST: Final = 64 * 1024
"""The most bytes of an answer that are read, its headers included."""


class NoConnection(httpcore2.ConnectError):
    """Nobody is there, or nobody who may be called: it is not told apart."""


class Enough(httpcore2.ReadError):
    """As much of the answer was read as is ever read."""


class Guard(httpcore2.AsyncNetworkBackend):
    """Connects to addresses within reach."""

    def __init__(self, reach: Reach, resolve: Resolve, *, most: int = MOST) -> None:
        """Take how many bytes of one answer are read, its headers included."""
        self._reach = reach
        self._resolve = resolve
        self._most = most

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the hook's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        del local_address, socket_options
        try:
            async with asyncio.timeout(timeout):
                stream = await self._connected(host, port, timeout)
                if stream is None:
                    # As long as nobody at all would take: the time tells nothing.
                    await asyncio.Event().wait()
        except TimeoutError:
            stream = None
        if stream is None:
            raise NoConnection("the address cannot be reached or is not allowed")
        return Bounded(stream, self._most)

    async def _connected(
        self, host: str, port: int, seconds: float | None
    ) -> httpcore2.AsyncNetworkStream | None:
        addresses = await self._judged(host, port)
        # One that swallows everything leaves time for the next.
        share = seconds if seconds is None or len(addresses) == 1 else seconds / 2
        for address in addresses:
            try:
                return await connect(address, port, share)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return None

    async def _judged(self, host: str, port: int) -> Sequence[str]:
        """Return what a name stands for; nothing if any of it is out of reach."""
        found = await self._resolve(host, port)
        if self._reach.vouches_for(host, port):
            return [plain(address) for address in found]
        if not all(map(self._reach.admits, found)):
            return ()
        return [plain(address) for address in found]


class Bounded(httpcore2.AsyncNetworkStream):
    """A connection that reads so much after each request and no more."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, most: int = MOST) -> None:
        self._stream = stream
        self._left = self._most = most

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        if self._left <= 0:
            raise Enough("the answer is longer than is read")
        data = await self._stream.read(min(max_bytes, self._left), timeout)
        self._left -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        self._left = self._most
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> httpcore2.AsyncNetworkStream:
        try:
            secured = await self._stream.start_tls(
                ssl_context, server_hostname, timeout
            )
        except BaseException:
            await self._stream.aclose()  # also if it was interrupted
            raise
        return Bounded(secured, self._most)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
