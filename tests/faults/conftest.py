"""
Real processes over one database, with leases short enough to lose.

The client of these tests watches from a process of its own and does no upkeep: what
is rescued, promoted or expired is the work of the processes under test.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, closing, suppress
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import httpx2
import pytest
import sqlalchemy as sa
from breakable import app, effects
from calling import app as calling
from stepping import app as stepping
from suspending import app as suspending

from backburner.adapters import find_store
from backburner.clock import SystemClock, SystemDice
from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.job import JobState
from backburner.domain.jobs.transitions import Limits
from backburner.engine.engine import Engine
from backburner.engine.registry import Registry
from backburner.engine.submit.submission import Options, Submission
from backburner.engine.watch import Watch
from backburner.ports.faults import NoFaults
from backburner.testing.auditor import Ledger, audit
from tests import warm
from tests.databases import each_store

LEASE = 1.5
SETTINGS = {
    "BACKBURNER_BEAT_SECONDS": "0.3",
    "BACKBURNER_LEASE_SECONDS": str(LEASE),
    "BACKBURNER_POLL_SECONDS": "0.3",
    "BACKBURNER_GRACE_SECONDS": "1",
    "BACKBURNER_LOG_FORMAT": "json",
}
DROPPED = ("BACKBURNER_", "COVERAGE_")
"""Who is killed writes down no coverage; measuring it would only make it slow."""
TRANSPORT = "BACKBURNER_TRANSPORT"
PATIENCE = 180.0
APPS = Path(__file__).parent / "apps"
SERVICES = Path(__file__).parents[2] / "tools" / "services"
BODY = {"capability": "work", "input": {"seconds": 0.02}}
TRACED = "fdatasync,fsync,read,recvfrom,sendto,sendmsg,write,writev"


class Process:
    """One `backburner` process and what it wrote."""

    def __init__(self, fleet, arguments, settings):
        self._log = fleet.folder / f"{len(fleet.processes)}.log"
        kept = {
            key: value
            for key, value in os.environ.items()
            if key == TRANSPORT or not key.startswith(DROPPED)
        }
        with self._log.open("wb") as log:
            self._popen = warm.Popen(
                [sys.executable, "-m", "backburner", *arguments],
                cwd=APPS,
                env=kept | SETTINGS | {"BACKBURNER_STORE": fleet.url} | settings,
                stdin=warm.DEVNULL,
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
    """The processes of one test, all over one database."""

    def __init__(self, folder, url):
        self.folder = folder
        self.url = url
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

    def __init__(self, store, notifier, watch):
        self.ledger = Ledger()
        self.store = store
        apps = (app, calling, stepping, suspending)
        registry = Registry([one for each in apps for one in each.capabilities])
        clock = SystemClock()
        self.engine = Engine(
            store=store,
            notifier=notifier,
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
        self.ledger.effective += ids if name in {"work", "block", "pay"} else []
        return ids

    async def ended(self, ids, within=PATIENCE):
        few = asyncio.Semaphore(50)  # thousands at once would wait for connections

        async def end(job_id):
            async with few, asyncio.timeout(within + PATIENCE):
                while True:
                    # A store that was broken a moment ago may not answer yet.
                    with suppress(StoreUnavailable):
                        return await self.engine.wait(job_id, timeout=within)

        return await asyncio.gather(*map(end, ids))

    async def at_rest(self):
        """Wait for all jobs, also those whose answer never reached the ledger."""

        async def is_at_rest():
            return not await self.store.depths()

        await eventually(is_at_rest)

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
        return await self.store.transact(
            lambda tx: audit(tx.connection, self.ledger, limits or Limits())
        )


class Caller:
    """Submits over HTTP all the time and keeps every answer."""

    def __init__(self, process, ledger):
        self._client = httpx2.AsyncClient(
            base_url=process.address, timeout=PATIENCE, trust_env=False
        )
        self._ledger = ledger
        self.answers = []
        self.stream = []
        self._tasks = []
        self._reading = None

    async def submit(self):
        answer = await self._client.post("/v1/jobs", json=BODY)
        self.answers.append((answer.status_code, answer.headers.get("Retry-After")))
        if answer.status_code == 202:
            job = answer.json()["id"]
            self._ledger.acknowledged.append(job)
            self._ledger.effective.append(job)
        return answer.status_code == 202

    async def accepted(self, within):
        """Submit until it is taken."""
        async with asyncio.timeout(within):
            await eventually(self.submit)

    async def _submit_for_ever(self, pause):
        while True:
            await self.submit()
            await asyncio.sleep(pause)

    async def _read_for_ever(self):
        """Follow every event, and come back after each cut."""
        while True:
            with suppress(httpx2.HTTPError):
                await self._read()
            await asyncio.sleep(0.05)

    async def _read(self):
        after = self.stream[-1] if self.stream else 0
        async with self._client.sse("/v1/events", params={"after": after}) as source:
            async for event in source:
                if event.data:
                    self.stream.append(int(event.id))

    def begin(self, tasks=4, *, pause=0.02):
        self._tasks = [
            asyncio.create_task(self._submit_for_ever(pause)) for _ in range(tasks)
        ]

    def follow(self):
        self._reading = asyncio.create_task(self._read_for_ever())

    async def pause(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def all_is_well(self, client):
        """Let the load end, look at what became of it; return how much it was."""
        await self.pause()
        ended = await client.ended(client.ledger.acknowledged)
        await client.at_rest()
        assert {202} == {status for status, _ in self.answers}
        assert {JobState.SUCCEEDED} == {job.state for job in ended}
        assert [] == await client.audit()
        return len(ended)

    async def close(self):
        await self.pause()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._client.aclose()


async def ticks(seconds, times):
    """Come so many times, so far apart."""
    for number in range(times):
        await asyncio.sleep(seconds)
        yield number


class OwnPostgres:
    """A server that nobody else uses, to be stopped without warning."""

    def __init__(self, services, folder):
        self._services = services
        folder.chmod(0o711)
        self._run = services.Run(folder, folder / "record.json")
        try:
            self._process, self._port = services.start_postgres(self._run)
        except services.Unavailable as error:
            cannot(str(error))
        self._wait()
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def crash_and_start(self):
        """Stop at once, as a power cut would, and recover from the log."""
        self.crash()
        self.start()

    def crash(self):
        """Be gone at once."""
        self._process.popen.send_signal(signal.SIGQUIT)
        self._process.popen.wait(PATIENCE)
        self._run.processes.remove(self._process)

    def start(self):
        """Be back with what was on the disk."""
        words, folder = self._process.popen.args, self._run.data / "postgres"
        self._process = self._run.spawn(
            "postgres", words, folder, goodbye=signal.SIGINT
        )
        self._wait()

    def end(self):
        self._run.stop()

    def _wait(self):
        answers = self._services.postgres_answers
        self._services.wait_until_ready(self._run, self._process, answers, self._port)


class OwnRedis:
    """A Redis server that nobody else uses, to be stopped without warning."""

    def __init__(self, services, folder):
        self._services = services
        folder.chmod(0o711)
        self._run = services.Run(folder, folder / "record.json")
        try:
            self._process, self._port = services.start_redis(self._run)
        except services.Unavailable as error:
            cannot(str(error))
        self._wait()
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def kill(self):
        """Be gone at once."""
        self._process.popen.kill()
        self._process.popen.wait(PATIENCE)
        self._run.processes.remove(self._process)

    def start(self):
        """Be back with what was on the disk."""
        words, folder = self._process.popen.args, self._run.data / "redis"
        self._process = self._run.spawn("redis", words, folder)
        self._wait()

    def end(self):
        self._run.stop()

    def _wait(self):
        answers = self._services.redis_answers
        self._services.wait_until_ready(self._run, self._process, answers, self._port)


class OwnRabbit:
    """A RabbitMQ server that nobody else uses, and its own tool."""

    def __init__(self, services, folder):
        folder.chmod(0o711)
        self._run = services.Run(folder, folder / "record.json")
        self._folder = folder / "rabbitmq"
        try:
            self._process, port = services.start_rabbitmq(self._run)
            self._tool = services.program(
                "rabbitmqctl", kept_in=[Path("/usr/lib/rabbitmq/bin")]
            )
            self._caller = services.program("erl_call")
            answers = services.rabbitmq_answers
            services.wait_until_ready(self._run, self._process, answers, port)
        except services.Unavailable as error:
            self._run.stop()
            cannot(str(error))
        self.url = f"amqp://guest:guest@127.0.0.1:{port}/"

    async def evaluate(self, expression):
        """Have the server evaluate Erlang; `rabbitmqctl` takes a second of CPU time."""
        cookie = (self._folder / ".erlang.cookie").read_text()
        call = await asyncio.create_subprocess_exec(
            *[self._caller, "-c", cookie, "-r", "-timeout", str(int(PATIENCE))],
            *["-sname", self._env["RABBITMQ_NODENAME"], "-e"],
            env={"HOME": str(self._folder), "PATH": os.defpath, **self._env},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        answer = (await call.communicate(f"{expression}.\n".encode()))[0].decode()
        assert answer.startswith("{ok, "), f"{expression} gave {answer}"
        return answer[len("{ok, ") :].rstrip().removesuffix("}")

    async def control(self, *words, tool="rabbitmqctl"):
        """Have the server's tool do something; return what it said."""
        said = self._run.data / "rabbitmqctl.log"
        said.unlink(missing_ok=True)
        words = [self._tool.with_name(tool), "-q", *words]
        tool = self._run.spawn("rabbitmqctl", words, self._folder, env=self._env)
        code = await asyncio.to_thread(tool.popen.wait, PATIENCE)
        self._run.processes.remove(tool)
        assert code == 0, said.read_text()
        return said.read_text()

    def end(self):
        self._run.stop()

    @property
    def _env(self):
        return self._process.env


async def eventually(is_so):
    """Wait for something that only another process knows."""
    async with asyncio.timeout(PATIENCE):
        while not await is_so():  # noqa: ASYNC110 - nobody here can set an event
            await asyncio.sleep(0.05)


@pytest.fixture(name="eventually")
def _eventually():
    return eventually


@pytest.fixture(name="ticks")
def _ticks():
    return ticks


def a_server_of_its_own(kind):
    """Start a server by `tools/services`, in a folder that goes with it."""
    loader = SourceFileLoader("services", str(SERVICES))
    services = module_from_spec(spec_from_loader("services", loader))
    sys.modules["services"] = services
    loader.exec_module(services)
    return kind(services, Path(tempfile.mkdtemp(prefix="backburner-")))


@pytest.fixture(scope="module")
def own_postgres():
    """A PostgreSQL server for the tests of one file."""
    server = a_server_of_its_own(OwnPostgres)
    yield server
    server.end()


@pytest.fixture(scope="module")
def own_redis():
    """A Redis server for the tests of one file."""
    server = a_server_of_its_own(OwnRedis)
    yield server
    server.end()


@pytest.fixture(scope="module")
def own_rabbit():
    """A RabbitMQ server for the tests of one file."""
    server = a_server_of_its_own(OwnRabbit)
    yield server
    server.end()


@pytest.fixture
async def caller_of(client):
    """Make callers that submit to a process, and end them."""
    async with AsyncExitStack() as stack:

        def make(process):
            caller = Caller(process, client.ledger)
            stack.push_async_callback(caller.close)
            return caller

        yield make


store_url = each_store


@pytest.fixture
def fleet(tmp_path, store_url):
    fleet = Fleet(tmp_path, store_url)
    yield fleet
    fleet.end()


@pytest.fixture
def gate(tmp_path):
    """A file for which `work` and `block` wait: it opens when it is gone."""
    gate = tmp_path / "gate"
    gate.touch()
    return gate


@pytest.fixture
async def client(fleet):
    store = find_store(fleet.url, SystemClock(), NoFaults())
    await store.open()
    await store.transact(
        lambda tx: tx.connection.execute(sa.schema.CreateTable(effects))
    )
    notifier = store.notifier()
    notifier.open()
    with closing(notifier):
        watch = Watch(store, notifier, poll=0.2)
        watch.start()
        yield Client(store, notifier, watch)
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

    async def begin(*pids):
        options = ["-f", "-e", f"trace={TRACED}", "-o", written]
        options += [word for pid in pids for word in ("-p", str(pid))]
        tracer = await asyncio.create_subprocess_exec(
            strace, *options, stderr=asyncio.subprocess.PIPE
        )
        for _ in pids:
            told = (await tracer.stderr.readline()).decode()
            if "No such process" in told:
                continue  # a session that ended in the meantime writes nothing
            if "attached" not in told:
                tracer.kill()
                await tracer.wait()
                cannot(f"strace may not trace here: {told.strip()}")

        async def end():
            tracer.send_signal(signal.SIGINT)
            await tracer.communicate()
            return written.read_text().splitlines()

        return end

    return begin
