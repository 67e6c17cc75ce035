"""
Connections below the HTTP library, on the event loop's own transports.

The library's own connections use anyio: twice the CPU per message, and TLS in Python.
Here it is also known without a system call whether an idle connection is still usable.
"""

import asyncio
import ssl
from typing import Any

import httpcore2

MOST_UNREAD = 64 * 1024
"""How many bytes are buffered before reading from the socket is paused."""


async def connect(
    address: str, port: int, seconds: float | None
) -> httpcore2.AsyncNetworkStream:
    """Connect to an address; names are not resolved."""
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
    """A connection with the interface that the HTTP library expects."""

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
        # The loop closes it in its next iteration, and may itself be closed after that.
        await asyncio.sleep(0)  # noqa: TID251 - one iteration, not a delay

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
    """The received bytes that were not read yet."""

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
        """Whether a read returns at once, with data or the end of the stream."""
        return self._is_over or bool(self._came)

    def info(self, name: str) -> Any:
        """Return information from the transport."""
        return self._transport.get_extra_info(name)

    async def read(self, most: int) -> bytes:
        """Return received bytes; none at the end of the stream."""
        while not self.has_more:
            self._news.clear()
            await self._news.wait()
        if not self._came and self._failure is not None:
            raise ConnectionError from self._failure
        data = bytes(self._came[:most])
        del self._came[:most]
        if self._is_held and len(self._came) < MOST_UNREAD:
            self._is_held = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Send data, and wait until the buffer has room."""
        if self._is_over:
            raise ConnectionResetError("the connection is closed")
        self._transport.write(data)
        await self._may_write.wait()

    async def secure(self, context: ssl.SSLContext, name: str | None) -> None:
        """Upgrade the connection to TLS."""
        loop = asyncio.get_running_loop()
        secured = await loop.start_tls(
            self._transport, self, context, server_hostname=name
        )
        if secured is None:
            raise ConnectionResetError("the connection was closed meanwhile")
        self._transport = secured

    def abort(self) -> None:
        """Close the connection at once."""
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
