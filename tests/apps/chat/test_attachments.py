"""Attachments by address: what may be fetched, and how much of it."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.apps.chat.conftest import PICTURE

CHUNK = b"x" * 65_536
MB = 1024 * 1024


class Server:
    """Sends as many bytes as its path says, and counts what it could send."""

    def __init__(self):
        self.url, self.sent, self.at_work = "", 0, {}

    def accept(self, reader, writer):
        task = asyncio.create_task(self.reply(reader, writer))
        self.at_work[task] = writer

    async def stop(self):
        for task, writer in self.at_work.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self.at_work, return_exceptions=True)

    async def reply(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        wanted = int(head.split()[1].rpartition("/")[2])
        status = "404 Not Found" if not wanted else "200 OK"
        writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n".encode())
        try:
            for _ in range(wanted // len(CHUNK)):
                writer.write(CHUNK)
                await writer.drain()
                self.sent += len(CHUNK)
        except ConnectionError:
            pass
        writer.close()


@asynccontextmanager
async def serving():
    found = Server()
    async with await asyncio.start_server(found.accept, "127.0.0.1", 0) as server:
        found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield found
        finally:
            await found.stop()


def allowing(url):
    port = int(url.rpartition(":")[2])
    return {
        "webhook_allow": ("127.0.0.1",),
        "webhook_http": True,
        "webhook_ports": (port,),
    }


@pytest.mark.one_store
async def test_an_attachment_of_100_mb_is_not_read_to_its_end(start):
    async with serving() as server:
        chat = await start(**allowing(server.url))
        await chat.make()
        attachments = [
            {"url": f"{server.url}/{size}", "contentType": "image/png", "name": name}
            for size, name in ((MB, "good"), (100 * MB, "large"), (0, "gone"))
        ]
        told = {"size": 100 * MB, "contentType": "audio/ogg", "name": "said"}
        attachments.append({"url": f"{server.url}/{MB}", **told})
        reply = await chat.generate(attachments=attachments)

    content = reply.json()["content"]
    assert '"good": [mock description: this picture of' in content
    assert '"large": could not be read: ' in content
    assert '"gone": could not be read: ' in content
    assert '"said": could not be read: it has more than 25 MB]' in content
    assert server.sent < 40 * MB


@pytest.mark.one_store
async def test_a_private_address_is_not_reached(start):
    async with serving() as server:
        chat = await start()
        await chat.make()
        port = server.url.rpartition(":")[2]
        attachments = [
            {"url": f"http://127.0.0.1:{port}/{MB}", "contentType": "image/png"},
            {"url": "https://169.254.169.254/x", "contentType": "image/png"},
            {"url": "file:///etc/passwd", "contentType": "audio/ogg"},
            {"dataUrl": PICTURE, "contentType": "image/png"},
        ]
        reply = await chat.generate(attachments=attachments)

    content = reply.json()["content"]
    assert 3 == content.count("could not be read")
    assert "Attachment 4, image: [mock description" in content
    assert 0 == server.sent
