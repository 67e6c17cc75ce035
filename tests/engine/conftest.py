"""A real Backburner over a file of its own; what a test waits for, it is told."""

import asyncio
import shutil
import sqlite3
import threading
from contextlib import AsyncExitStack, contextmanager

import pytest

from backburner import Backburner
from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner.domain.jobs.job import JobState
from backburner.engine.observability import telemetry
from backburner.ports.ai import Reply, Tokens
from backburner.settings import Settings
from backburner.testing.broker.acts import pause
from backburner.testing.broker.memory import MemoryServer

PATIENCE = 180.0


@pytest.fixture
def path(tmp_path, template):
    return shutil.copy(template, tmp_path / "jobs.db")


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request):
    """One database of each kind; a test may ask for one of them."""
    if request.param == "postgres":
        return request.getfixturevalue("migrated_url")
    return f"sqlite:///{request.getfixturevalue('path')}"


@pytest.fixture
def server():
    """What brokers of one test have in common."""
    return MemoryServer()


@pytest.fixture
def backburner(home_url):
    """Build instances over the test's database; each is opened by `async with`."""

    def build(*capabilities, **settings):
        usual = {"grace_seconds": 0, "poll_seconds": 0.2, "ai": ("mock",)}
        given = {**usual, **settings}
        return Backburner(Settings(store=home_url, **given), capabilities=capabilities)

    return build


@pytest.fixture
async def working(backburner):
    """Open an instance with a worker in it."""
    async with AsyncExitStack() as stack:

        async def start(*capabilities, **settings):
            opened = await stack.enter_async_context(
                backburner(*capabilities, **settings)
            )
            await opened.start_worker()
            return opened

        yield start


@pytest.fixture
async def submitting(backburner):
    """Open an instance that runs nothing."""
    async with AsyncExitStack() as stack:

        async def start(*capabilities, **settings):
            return await stack.enter_async_context(
                backburner(*capabilities, **settings)
            )

        yield start


@pytest.fixture
def write(path):
    """Write to the file past the engine."""

    @contextmanager
    def opened():
        connection = sqlite3.connect(path)
        with connection:
            yield connection
        connection.close()

    return opened


@pytest.fixture
def told():
    """Wait for an event of a job."""

    async def told(ticket, kind):
        async with asyncio.timeout(PATIENCE):
            async for event in ticket.events():
                if event.type == kind:
                    return event
        raise AssertionError(f"job {ticket.id} ended without {kind}")

    return told


@pytest.fixture
def ended():
    """Wait for the end of a job."""

    async def ended(ticket):
        job = await ticket.wait(timeout=PATIENCE)
        assert job.state.is_final, f"job {job.id} is {job.state}"
        return job

    return ended


@pytest.fixture
def until():
    """Wait until something is so."""

    async def until(predicate):
        async with asyncio.timeout(PATIENCE):
            while not predicate():
                await pause()

    return until


@pytest.fixture
def threads():
    """Name the threads that instances have started."""

    def threads():
        names = [thread.name for thread in threading.enumerate()]
        return sorted(name for name in names if name.startswith("backburner"))

    return threads


@pytest.fixture
def finished():
    """Count the jobs of a capability that were told to have failed."""

    def finished(capability):
        return telemetry.jobs_finished.labels(capability, JobState.FAILED)._value.get()

    return finished


SETTINGS = {"grace_seconds": 0, "poll_seconds": 0.2}


class Counting(Mock):
    """A provider that numbers its answers and counts its calls."""

    def __init__(self):
        super().__init__(SystemClock())
        self.asked = []

    async def chat(self, chat, hear=None):
        self.asked.append(chat.messages[-1].text)
        text = f"{chat.messages[-1].text} {len(self.asked)}"
        if chat.schema is not None:
            text = f'{{"title": "{text}"}}'
        if hear is not None:
            await hear(text)
        return Reply(text, chat.model, Tokens(60, 40))

    async def embed(self, texts, model):
        self.asked.append("embed")
        return Reply([[float(len(self.asked))] for _ in texts], model, Tokens(5, 0))


@pytest.fixture
async def running(home_url):
    """Open an instance that works on a handler with a counting provider."""
    opened = []

    async def start(one, provider=None, **settings):
        backburner = Backburner(
            Settings(store=home_url, **{**SETTINGS, **settings}),
            capabilities=[one],
            ai=provider or Counting(),
        )
        await backburner.__aenter__()
        opened.append(backburner)
        await backburner.start_worker()
        return backburner

    yield start
    for backburner in opened:
        await backburner.__aexit__(None, None, None)
