"""
The network layer below the HTTP library: checks addresses, limits what is read.

A name is resolved once, here, and the connection goes to an address that was checked.
The TLS name and the Host header remain those of the URL.
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
"""The maximum number of bytes of a response that are read, including headers."""


class NoConnection(httpcore2.ConnectError):
    """The address cannot be reached or is not allowed; the error does not say which."""


class Enough(httpcore2.ReadError):
    """The response exceeds the size that is read."""


class Guard(httpcore2.AsyncNetworkBackend):
    """Connects to allowed addresses."""

    def __init__(self, reach: Reach, resolve: Resolve, *, most: int = MOST) -> None:
        """`most` is the maximum number of bytes of a response, including headers."""
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
                    # Wait as for an unreachable address: the time must reveal nothing.
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
        # An address that does not respond must leave time for the next one.
        share = seconds if seconds is None or len(addresses) == 1 else seconds / 2
        for address in addresses:
            try:
                return await connect(address, port, share)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return None

    async def _judged(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a name; none if any of them is not allowed."""
        addresses = await self._resolve(host, port)
        if self._reach.vouches_for(host, port):
            return [plain(address) for address in addresses]
        if not all(map(self._reach.admits, addresses)):
            return ()
        return [plain(address) for address in addresses]


class Bounded(httpcore2.AsyncNetworkStream):
    """A connection that limits the bytes read after each request."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, most: int = MOST) -> None:
        self._stream = stream
        self._left = self._most = most

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        if self._left <= 0:
            raise Enough("the response exceeds the size that is read")
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
            await self._stream.aclose()  # also if it was cancelled
            raise
        return Bounded(secured, self._most)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
