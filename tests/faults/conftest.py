"""
Real processes over one SQLite file, with leases short enough to lose.

The client of these tests watches from a process of its own and does no upkeep: what
is rescued, promoted or expired is the work of the processes under test.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from breakable import app, effects

from backburner.clock import SystemClock, SystemDice
from backburner.domain.transitions import Limits
from backburner.engine.engine import Engine
from backburner.engine.registry import Registry
from backburner.engine.submission import Options, Submission
from backburner.engine.watch import Watch
from backburner.ports.faults import NoFaults
from backburner.stores.sqlite.store import SqliteStore
from backburner.testing.auditor import Ledger, audit

LEASE = 1.5
SETTINGS = {
    "BACKBURNER_BEAT_SECONDS": "0.3",
    "BACKBURNER_LEASE_SECONDS": str(LEASE),
    "BACKBURNER_POLL_SECONDS": "0.3",
    "BACKBURNER_GRACE_SECONDS": "1",
    "BACKBURNER_LOG_FORMAT": "json",
}
PATIENCE = 60.0
APPS = Path(__file__).parent / "apps"
TRACED = "fdatasync,fsync,read,recvfrom,sendto,sendmsg,write,writev"


class Process:
    """One `backburner` process and what it wrote."""

    def __init__(self, fleet, arguments, settings):
        self._log = fleet.folder / f"{len(fleet.processes)}.log"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("BACKBURNER_")}
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "backburner", *arguments],
                cwd=APPS,
                env=kept | SETTINGS | {"BACKBURNER_STORE": fleet.url} | settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self):
        return self._popen.pid

    @property
    def is_running(self):
        return self._popen.poll() is None

    @property
    def log(self):
        return self._log.read_text("utf-8", "replace")

    def signal(self, number):
        self._popen.send_signal(number)

    def kill(self):
        if self.is_running:
            self._popen.kill()
        self._popen.wait()

    def exit_code(self):
        return self._popen.wait(PATIENCE)

    async def ended(self):
        return await asyncio.to_thread(self.exit_code)

    async def ready(self):
        await eventually(self._has_spoken)
        assert self.is_running, self.log
        return self

    async def _has_spoken(self):
        return "Backburner " in self.log or not self.is_running

    @property
    def address(self):
        return self.log.partition("ready at ")[2].split()[0]


class Fleet:
    """The processes of one test, all over one file."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"
        self.processes = []

    def worker(self, module="breakable", *, slots=8, **settings):
        arguments = ["worker", "--app", f"{module}:app", "--slots", str(slots)]
        return self._start(arguments, settings)

    def serve(self, module="breakable", *options, **settings):
        app = f"{module}:app"
        arguments = ["serve", "--dev", "--port", "0", "--app", app, *options]
        return self._start(arguments, settings)

    def end(self):
        for process in self.processes:
            process.kill()

    @property
    def logs(self):
        return "".join(process.log for process in self.processes)

    def _start(self, arguments, settings):
        self.processes.append(Process(self, arguments, settings))
        return self.processes[-1]


class Client:
    """Submits, waits and looks, and keeps a ledger of its own."""

    def __init__(self, path, store, bell, watch):
        self.path = path
        self.ledger = Ledger()
        self.store = store
        registry = Registry(app.capabilities)
        clock = SystemClock()
        self.engine = Engine(
            store=store,
            bell=bell,
            clock=clock,
            registry=registry,
            submission=Submission(registry, clock, SystemDice()),
            watch=watch,
        )

    async def submit(self, name, *values, **options):
        submitted = await self.engine.submit_many(
            [(name, value, Options(**options)) for value in values]
        )
        ids = [answer.id for answer in submitted]
        self.ledger.acknowledged += ids
        self.ledger.effective += ids if name in {"work", "block"} else []
        return ids

    async def ended(self, ids, within=PATIENCE):
        return await asyncio.gather(
            *(self.engine.wait(job_id, timeout=within) for job_id in ids)
        )

    async def seen(self, job_id, kind, *, after=0):
        """Wait until something happened to a job; return the event."""
        job = await self.engine.find(job_id)
        async with asyncio.timeout(PATIENCE):
            async for event in self.engine.events(job, after=after):
                if event.type == kind:
                    return event
        return pytest.fail(f"job {job_id} ended without {kind}")

    async def types(self, job_id):
        return [e.type for e in await self.store.history(job_id, after=0, limit=1000)]

    async def audit(self, limits=None):
        """Return every broken promise of the store at rest."""
        rows = await self.store.transact(
            lambda tx: tx.connection.execute(sa.select(effects)).all()
        )
        self.ledger.effects = [tuple(row) for row in rows]
        return await asyncio.to_thread(
            audit, self.path, self.ledger, limits or Limits()
        )


async def eventually(is_so):
    """Wait for something that only another process knows."""
    async with asyncio.timeout(PATIENCE):
        while not await is_so():  # noqa: ASYNC110 - nobody here can set an event
            await asyncio.sleep(0.02)


@pytest.fixture(name="eventually")
def _eventually():
    return eventually


@pytest.fixture
def fleet(tmp_path):
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.end()


@pytest.fixture
async def client(fleet):
    store = SqliteStore.from_url(fleet.url, SystemClock(), NoFaults())
    await store.open()
    await store.transact(
        lambda tx: tx.connection.execute(sa.schema.CreateTable(effects))
    )
    bell = store.bell()
    bell.open()
    with closing(bell):
        watch = Watch(store, bell, poll=0.2)
        watch.start()
        yield Client(fleet.path, store, bell, watch)
        await watch.stop()
    fleet.end()
    await store.close()


@pytest.fixture
async def restarting(fleet):
    """Keep workers alive: one that ends is started again."""
    tasks = []

    async def supervise(settings):
        while True:
            await fleet.worker(**settings).ended()

    def keep(count, **settings):
        tasks.extend(asyncio.ensure_future(supervise(settings)) for _ in range(count))

    yield keep
    for task in tasks:
        task.cancel()
    fleet.end()


def cannot(reason):
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
async def trace(tmp_path):
    """Trace a process; give back what ends that and returns the lines."""
    strace = shutil.which("strace")
    if strace is None:
        cannot("strace is not installed: apt-get install strace")
    written = tmp_path / "trace"

    async def begin(process):
        options = ["-f", "-e", f"trace={TRACED}", "-o", written, "-p", str(process.pid)]
        tracer = await asyncio.create_subprocess_exec(
            strace, *options, stderr=asyncio.subprocess.PIPE
        )
        told = (await tracer.stderr.readline()).decode()
        if "attached" not in told:
            await tracer.wait()
            cannot(f"strace may not trace here: {told.strip()}")

        async def end():
            tracer.send_signal(signal.SIGINT)
            await tracer.communicate()
            return written.read_text().splitlines()

        return end

    return begin
