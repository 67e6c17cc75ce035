"""
Our own fake Bot API: it limits, refuses and fails as Telegram does.

It reads messages by their parse mode, so a text that is badly escaped or too long is
refused as Telegram refuses it.
"""

import asyncio
import re
from collections import deque
from contextlib import asynccontextmanager, suppress
from html.parser import HTMLParser

import orjson
import telegram

TOKEN = "123456:a-token"  # noqa: S105 - of the tests
LONGEST = 4096
DROP, HANG = "drop", "hang"
MARKED = re.compile(r"\\([_*`\[])|([_*`\[])")


class Unreadable(Exception):
    """A text that its parse mode does not allow."""


class _Html(HTMLParser):
    def __init__(self):
        super().__init__()
        self.shown, self.opened = "", []

    def handle_starttag(self, tag, attrs):
        if tag not in {"b", "i", "u", "code", "pre"} or attrs:
            raise Unreadable(tag)
        self.opened.append(tag)

    def handle_endtag(self, tag):
        if not self.opened or self.opened.pop() != tag:
            raise Unreadable(tag)

    def handle_data(self, data):
        self.shown += data


def shown(text, parse_mode):
    """Return a text as a user reads it; raise `Unreadable`."""
    if parse_mode == "HTML":
        found = _Html()
        found.feed(text)
        found.close()
        if found.opened:
            raise Unreadable(found.opened[-1])
        return found.shown
    if any(match[2] for match in MARKED.finditer(text)):
        raise Unreadable("an entity that nobody closes")
    return MARKED.sub(r"\1", text)


def units(text):
    return len(text.encode("utf-16-le")) // 2


class FakeBot:
    """One bot's API; `script` says how its next calls go, `None`: well."""

    def __init__(self):
        self.url = ""
        self.sent = []
        """Accepted messages, with the text as it is read."""
        self.calls = []
        """All calls: method and body."""
        self.script = deque()
        self.files = {}
        self.called = asyncio.Condition()

    async def said(self, count=1):
        """Wait until so many messages were accepted; return their texts."""
        async with asyncio.timeout(300), self.called:
            await self.called.wait_for(lambda: len(self.sent) >= count)
        return [message["shown"] for message in self.sent]

    async def was_called(self, count):
        """Wait until so many calls were made."""
        async with asyncio.timeout(300), self.called:
            await self.called.wait_for(lambda: len(self.calls) >= count)

    def replies(self):
        """Return the accepted messages, read by python-telegram-bot."""
        return [telegram.Message.de_json(m["message"], None) for m in self.sent]

    async def answer(self, path, body):
        """Return status and body of one call; `None`: the connection is cut."""
        prefix = f"/bot{TOKEN}/"
        if path.startswith(f"/file{prefix}"):
            content = self.files.get(path.removeprefix(f"/file{prefix}"))
            found = (404, b"") if content is None else (200, content)
            return await self._noted("file", {}, found)
        method = path.removeprefix(prefix)
        asked = orjson.loads(body)
        step = self.script.popleft() if self.script else None
        if step is not None:
            return await self._noted(method, asked, step)
        do = {"sendMessage": self._send, "getFile": self._file}[method]
        status, result = do(asked)
        key = "result" if status == 200 else "description"
        told = {"ok": status == 200, key: result}
        return await self._noted(method, asked, (status, orjson.dumps(told)))

    async def _noted(self, method, body, step):
        async with self.called:
            self.calls.append((method, body))
            self.called.notify_all()
        if step == HANG:
            await asyncio.Event().wait()
        return None if step == DROP else step

    def _send(self, asked):
        assert asked.keys() == {"chat_id", "text", "parse_mode"}
        try:
            text = shown(asked["text"], asked["parse_mode"])
        except Unreadable:
            return 400, "Bad Request: can't parse entities"
        if not text.strip() or units(text) > LONGEST:
            return 400, "Bad Request: message is too long"
        message = {
            "message_id": len(self.sent) + 1,
            "date": 1794975000,
            "chat": {"id": asked["chat_id"], "type": "private"},
            "text": text,
        }
        self.sent.append({**asked, "shown": text, "message": message})
        return 200, message

    def _file(self, asked):
        path = f"voice/{asked['file_id']}.oga"
        if path not in self.files:
            return 400, "Bad Request: invalid file_id"
        unique = {"file_unique_id": "u", "file_size": len(self.files[path])}
        return 200, {"file_id": asked["file_id"], "file_path": path, **unique}


@asynccontextmanager
async def serving(answer, heads=()):
    """
    Serve what `answer(path, body)` returns: status and body; give the URL.

    `heads` gets the head of each request.
    """
    at_work, heads = {}, heads if isinstance(heads, list) else []

    def accept(reader, writer):
        # Known from the first moment: a task that never began closes nothing.
        at_work[asyncio.create_task(reply(reader, writer))] = writer

    async def reply(reader, writer):
        await reply_once(reader, writer)
        writer.close()

    async def reply_once(reader, writer):
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            heads.append(head)
            told = head.lower().partition("content-length:")[2].split()
            body = await reader.readexactly(int(told[0]) if told else 0)
            found = await answer(head.split()[1], body)
            if found is not None:
                status, content = found
                head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n"
                writer.write(head.encode() + b"Connection: close\r\n\r\n" + content)
                await writer.drain()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task, writer in at_work.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*at_work, return_exceptions=True)
