"""A provider of models on the loopback address, which counts for itself."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx2


class Provider:
    """Answers every request, and keeps its own books."""

    INPUT, OUTPUT = 600, 100

    def __init__(self, port):
        self.calls = 0
        self._client = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False
        )

    @property
    def input_tokens(self):
        return self.calls * self.INPUT

    @property
    def output_tokens(self):
        return self.calls * self.OUTPUT

    async def ask(self, model):
        """Call it as a handler would; return what the answer says was used."""
        answer = await self._client.post("/v1/chat/completions", json={"model": model})
        told = answer.json()["usage"]
        return {
            "input_tokens": told["prompt_tokens"],
            "output_tokens": told["completion_tokens"],
        }

    async def serve(self, reader, writer):
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
            await reader.readexactly(int(length))
            self.calls += 1
            used = {"prompt_tokens": self.INPUT, "completion_tokens": self.OUTPUT}
            body = json.dumps({"usage": used}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            writer.write(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def close(self):
        await self._client.aclose()


@asynccontextmanager
async def a_provider():
    """Start one on a free port."""
    provider = None

    async def serve(reader, writer):
        try:
            await provider.serve(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    provider = Provider(listener.sockets[0].getsockname()[1])
    try:
        yield provider
    finally:
        await provider.close()
        listener.close()
        await listener.wait_closed()
