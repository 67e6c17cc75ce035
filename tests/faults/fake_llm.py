"""A provider over HTTP that keeps a journal of the calls it would charge for."""

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

WRITTEN = 7
"""Tokens of each answer."""
FIRST = 1_000


NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Charged(NamedTuple):
    """A call: no other one has as many tokens."""

    prompt: str
    read: int

    @property
    def job(self):
        return self.prompt.partition(",")[0]


class FakeLlm:
    """Charges for each request that arrives, and answers when it is let to."""

    def __init__(self):
        self.journal = []
        self._calls = {}
        """By the id that the caller chose, for those who ask what became of a call."""
        self.url = ""
        self._allowed = 0
        self._answered = 0
        self._more = asyncio.Condition()
        self._open = Counter()

    async def callers(self):
        """Return who waits for an answer, by their keys, as soon as somebody does."""
        async with self._more:
            await self._more.wait_for(lambda: +self._open)
            return sorted(+self._open)

    async def _note(self, key, change):
        async with self._more:
            self._open[key] += change
            self._more.notify_all()

    async def allow(self, answers):
        """Let so many requests be answered, in all."""
        async with self._more:
            self._allowed = answers
            self._more.notify_all()

    def environment(self, key):
        """Return what makes a process ask this provider, with a key of its own."""
        return {
            "BACKBURNER_AI": "openai",
            "OPENAI_BASE_URL": self.url,
            "OPENAI_API_KEY": key,
        }

    def calls(self):
        """Return how many calls each job made."""
        return Counter(call.job for call in self.journal)

    async def serve(self, reader, writer):
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length:")[2].split()[0])
            asked = json.loads(await reader.readexactly(length))
            key = head.partition("authorization: bearer ")[2].split()[0]
            if "/lookup" in head.partition("\r\n")[0]:
                call = self._calls.get(asked["id"])
            else:
                call = self._charge(asked)
            if call is None:
                writer.write(NOT_FOUND)
                await writer.drain()
                writer.close()
                return
            await self._note(key, +1)
            is_answered = await self._turn(asyncio.ensure_future(reader.read(1)))
            await self._note(key, -1)
            if is_answered:
                writer.write(_answer(call))
                await writer.drain()
        writer.close()

    def _charge(self, asked):
        prompt = asked["messages"][-1]["content"]
        call = Charged(prompt, FIRST + len(self.journal))
        self.journal.append(call)
        self._calls[asked.get("id")] = call
        return call

    async def _turn(self, gone):
        """Wait for leave to answer; `False` if nobody waits for the answer any more."""
        turn = asyncio.ensure_future(self._leave())
        await asyncio.wait({turn, gone}, return_when=asyncio.FIRST_COMPLETED)
        is_mine = turn.done()
        for task in (turn, gone):
            task.cancel()
        await asyncio.gather(turn, gone, return_exceptions=True)
        return is_mine

    async def _leave(self):
        async with self._more:
            await self._more.wait_for(lambda: self._answered < self._allowed)
            self._answered += 1


def _answer(call):
    body = json.dumps(
        {
            "model": "m",
            "choices": [
                {"message": {"content": call.prompt}, "finish_reason": "stop"},
            ],
            "usage": {
                "prompt_tokens": call.read,
                "completion_tokens": WRITTEN,
                "total_tokens": call.read + WRITTEN,
            },
        }
    ).encode()
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@asynccontextmanager
async def fake_llm():
    """Serve on a free port."""
    llm = FakeLlm()
    async with await asyncio.start_server(llm.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        llm.url = f"http://127.0.0.1:{port}/v1"
        yield llm
