"""A provider that is spoken to by the byte, and instances that ask it."""

import asyncio
import json
import shutil
from contextlib import AsyncExitStack

import pytest

from backburner import Backburner
from backburner.clock import SystemClock
from backburner.engine.models.asking import Asker, Providers
from backburner.ports.ai import Access, Models
from backburner.settings import Settings

KEY = "sk-very-secret-key"
MODELS = Models("gpt-5-mini", "text-embedding-3-small", "whisper-1", "gpt-5-mini")


class Raw:
    """Answers each request with the next bytes, and sees who hangs up."""

    def __init__(self):
        self.answers = []
        self.requests = []
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self.url = ""

    def says(self, body, status="200 OK", **headers):
        """Answer with a whole body next."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        told = {"Content-Type": "application/json", "Content-Length": len(body)}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{name}: {value}" for name, value in told.items()]
        head = "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""])
        self.answers.append((head.encode() + body, False))

    def streams(self, *chunks, hangs=False):
        """Answer with a stream next, which ends after these or hangs."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        events = [c if isinstance(c, bytes) else json.dumps(c).encode() for c in chunks]
        body = b"".join(b"data: %b\n\n" % event for event in events)
        self.answers.append((head + body, not hangs))

    def hangs(self):
        """Answer with nothing next."""
        self.answers.append((b"", False))

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
                self.requests.append(json.loads(await reader.readexactly(int(length))))
                self.asked.set()
                answer, ends = self.answers.pop(0)
                writer.write(answer)
                await writer.drain()
                if ends:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()


@pytest.fixture
async def raw():
    raw = Raw()
    listener = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    raw.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    yield raw
    listener.close()


@pytest.fixture
async def openai_at():
    """Make the adapter for a base URL."""
    from backburner.ai.openai import OpenAI  # noqa: PLC0415 - it takes a second

    made = []

    def build(url, key=KEY):
        made.append(OpenAI(Access(MODELS, key, url)))
        return made[-1]

    yield build
    for provider in made:
        await provider.close()


@pytest.fixture
def asker_at(openai_at):
    """Make an asker without a job."""

    def build(url, *more, seconds=10.0, **given):
        chain = [openai_at(url), *more]
        return Asker(Providers(chain, SystemClock(), seconds), **given)

    return build


@pytest.fixture
def store(request, tmp_path, template):
    """A migrated database: SQLite's, unless a test asks for the other, too."""
    if getattr(request, "param", "sqlite") == "postgres":
        return request.getfixturevalue("migrated_url")
    return f"sqlite:///{shutil.copy(template, tmp_path / 'jobs.db')}"


@pytest.fixture
async def working_at(store):
    """Open an instance with a worker whose provider is at a base URL."""
    async with AsyncExitStack() as stack:

        async def start(url, *capabilities, **settings):
            given = {
                "ai": ("openai",),
                "openai_api_key": KEY,
                "openai_base_url": url,
                "grace_seconds": 0,
                "poll_seconds": 0.2,
                **settings,
            }
            backburner = Backburner(
                Settings(store=store, **given), capabilities=capabilities
            )
            await stack.enter_async_context(backburner)
            await backburner.start_worker()
            return backburner

        yield start
