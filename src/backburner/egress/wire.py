"""
Connections under the HTTP stack, by the event loop's own transports.

What the stack brings goes through anyio: twice the CPU for each message, and TLS in
Python. Whether an idle connection is still good is known here without a system call.
"""

import asyncio
import ssl
from typing import Any

import httpcore2

MOST_UNREAD = 64 * 1024
"""How many bytes may have come before anybody asks for them."""


async def connect(
    address: str, port: int, seconds: float | None
) -> httpcore2.AsyncNetworkStream:
    """Connect to an address; nothing is resolved."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            _, line = await loop.create_connection(_Line, address, port)
    except TimeoutError as error:
        raise httpcore2.ConnectTimeout from error
    except OSError as error:
        raise httpcore2.ConnectError from error
    return Wire(line)


class Wire(httpcore2.AsyncNetworkStream):
    """One connection, as the HTTP stack wants it."""

    def __init__(self, line: "_Line") -> None:
        self._line = line

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the hook's signature
        try:
            async with asyncio.timeout(timeout):
                return await self._line.read(max_bytes)
        except TimeoutError as error:
            raise httpcore2.ReadTimeout from error
        except OSError as error:
            raise httpcore2.ReadError from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        try:
            async with asyncio.timeout(timeout):
                await self._line.write(buffer)
        except TimeoutError as error:
            raise httpcore2.WriteTimeout from error
        except OSError as error:
            raise httpcore2.WriteError from error

    async def aclose(self) -> None:
        self._line.abort()
        # The loop closes it in its next turn, and may itself be closed after that.
        await asyncio.sleep(0)  # noqa: TID251 - a turn, no wait

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                await self._line.secure(ssl_context, server_hostname)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout from error
        except (OSError, ValueError) as error:  # a name that no certificate can have
            raise httpcore2.ConnectError from error
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._line.has_more
        return self._line.info(info)


class _Line(asyncio.Protocol):
    """What came and was not read yet, and whoever waits for more."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._came = bytearray()
        self._is_over = False
        self._failure: Exception | None = None
        self._is_held = False
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._news = asyncio.Event()

    @property
    def has_more(self) -> bool:
        """Whether somebody who reads gets something, or the end, at once."""
        return self._is_over or bool(self._came)

    def info(self, name: str) -> Any:
        """Return what the transport knows."""
        return self._transport.get_extra_info(name)

    async def read(self, most: int) -> bytes:
        """Return what came, or nothing at the end."""
        while not self.has_more:
            self._news.clear()
            await self._news.wait()
        if not self._came and self._failure is not None:
            raise ConnectionError from self._failure
        taken = bytes(self._came[:most])
        del self._came[:most]
        if self._is_held and len(self._came) < MOST_UNREAD:
            self._is_held = False
            self._transport.resume_reading()
        return taken

    async def write(self, data: bytes) -> None:
        """Send, once there is room for it."""
        if self._is_over:
            raise ConnectionResetError("the connection is closed")
        self._transport.write(data)
        await self._may_write.wait()

    async def secure(self, context: ssl.SSLContext, name: str | None) -> None:
        """Go on by TLS."""
        loop = asyncio.get_running_loop()
        secured = await loop.start_tls(
            self._transport, self, context, server_hostname=name
        )
        if secured is None:
            raise ConnectionResetError("the connection was closed meanwhile")
        self._transport = secured

    def abort(self) -> None:
        """Close, whatever the other side makes of it."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._came += data
        if len(self._came) >= MOST_UNREAD and not self._is_held:
            self._is_held = True
            self._transport.pause_reading()
        self._news.set()

    def eof_received(self) -> None:
        self._is_over = True
        self._news.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over = True
        self._failure = error
        self._news.set()
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()
