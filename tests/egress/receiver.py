"""A receiver on a real socket that behaves, or misbehaves, as it is told."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

A_MOMENT = 0.01
PATIENCE = 180.0


def answers(status, *, body=b"", **headers):
    """Answer properly."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    async def behave(writer):
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    return behave


async def hangs(writer):
    """Take the request and say nothing."""
    del writer
    await asyncio.Event().wait()


async def slams(writer):
    """Take the request and close the door."""
    writer.close()


async def cuts(writer):
    """Promise more than is sent."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
    await writer.drain()
    writer.close()


async def babbles(writer):
    """Speak something else."""
    writer.write(b"220 smtp.example ESMTP\r\n" * 3)
    writer.close()


def drips(start):
    """Say a letter now and then."""

    async def behave(writer):
        writer.write(start)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.wait({asyncio.create_task(hangs(writer))}, timeout=A_MOMENT)

    return behave


def pours(start, more):
    """Say the same for ever, as fast as it is taken."""

    async def behave(writer):
        writer.write(start)
        while True:
            writer.write(more * 1000)
            await writer.drain()

    return behave


@dataclass
class Request:
    """A request as it came in."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """A server on loopback and what it was sent."""

    behave: object
    host: str = "127.0.0.1"
    port: int = 0
    tls: object = None
    greeting: bytes = b""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self):
        self.called = asyncio.Event()
        self.left = asyncio.Event()
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(
            self._serve, self.host, self.port, ssl=self.tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, host=None, scheme="http"):
        return f"{scheme}://{host or self.host}:{self.port}/hook?key=1"

    async def deserted(self):
        """Wait until whoever called has gone."""
        async with asyncio.timeout(PATIENCE):
            await self.left.wait()

    async def _serve(self, reader, writer):
        self.connections += 1
        task = asyncio.current_task()
        self._tasks.add(task)
        writer.write(self.greeting)
        with suppress(ConnectionError, asyncio.CancelledError):
            while request := await _read(reader):
                self.requests.append(request)
                self.called.set()
                await self.behave(writer)
                await writer.drain()
        self.left.set()
        writer.transport.abort()


async def _read(reader):
    with suppress(asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.strip().split("\r\n")
        headers = dict(entry.split(": ", 1) for entry in rest)
        names = {name.lower(): value for name, value in headers.items()}
        body = await reader.readexactly(int(names.get("content-length", 0)))
        return Request(line, names, body)
