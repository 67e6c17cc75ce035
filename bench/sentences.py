"""
Creates tasks from sentences: a client, `serve tasks`, `serve ai`, `worker` and a model.

Each is a separate process; npm's aimock simulates the model and answers immediately.
Backburner's share is computed twice. Its share of the three processes' CPU time is the
part that the same number of calls by the provider's adapter alone does not need. Its
share of the time from submit to task, with one sentence after the other, is the part
that is not a model call in `openaiMetadata`.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import sqlalchemy as sa

from backburner import Backburner, Settings, Transaction
from backburner.adapters import find_providers
from backburner.clock import SystemClock
from backburner.ports.ai import Chat, Message
from backburner_apps.ai.answers import QUEUE
from backburner_apps.tasks.book import CREATED, OPEN
from backburner_apps.tasks.tables import requests
from bench.brokers import forget_queue
from bench.meter import Expected, Meter, NotTrueError, at_least, check, quantiles
from bench.wire import post
from tests.aimock import AiMock, started

AT_ONCE = 20
"""Number of users, each with one sentence in progress; a quarter if few are sent."""
WARM = at_least(50)
"""Sentences that open the connections and are not measured."""
SINGLY = 50
"""One of how many sentences is sent one after the other."""
FEWEST = at_least(20)
"""Minimum number of sentences of each kind."""
LOOK_SECONDS = 0.002, 0.02
"""Intervals of polling for new tasks: with one in progress, and with many."""
SENTENCE = "urgently pack for Lisbon by Friday 9 am: passport, charger and shoes"
TASK = {
    "title": "Pack for Lisbon",
    "dueDate": "2026-11-20T09:00:00+00:00",
    "priority": "urgent",
    "category": "travel",
    "subtasks": [{"title": "passport"}, {"title": "charger"}, {"title": "shoes"}],
}
KEY = "sk-nothing"
MODEL = "model"
PATIENCE = 600.0
"""Seconds to wait for the tasks of all sentences."""
EVENTS = 9
"""Events of a flow of two steps without failures."""
COUNTS = """
    SELECT (SELECT count(*) FROM tasks_tasks),
           (SELECT count(DISTINCT request_id) FROM tasks_tasks),
           (SELECT count(*) FROM tasks_subtasks),
           (SELECT count(*) FROM tasks_requests WHERE state = 'created'),
           (SELECT count(*) FROM tasks_requests),
           (SELECT count(*) FROM usages),
           (SELECT sum(held) FROM accounts), (SELECT sum(settled) FROM accounts),
           (SELECT sum(input_tokens + output_tokens) FROM usages)
"""
ANSWERS = "SELECT output FROM jobs WHERE capability = 'parse-task' ORDER BY seq"

Figures = dict[str, Any]


class Deployment(NamedTuple):
    """The running processes and their addresses."""

    processes: Mapping[str, psutil.Process]
    """Backburner's three processes by name."""
    port: int


async def tasked(url: str, transport: str, folder: Path, count: int) -> Figures:
    """Send sentences one after the other, then concurrently; check their tasks."""
    singly, at_once = min(SINGLY, count), min(AT_ONCE, count // 4)
    await asyncio.to_thread(forget_queue, transport, QUEUE)
    async with AsyncExitStack() as stack:
        bb = await stack.enter_async_context(Backburner(Settings(store=url)))
        model = await asyncio.to_thread(stack.enter_context, started(folder))
        await asyncio.to_thread(model.answers, json.dumps(TASK))
        env = _settings(url, transport, model)
        deployed = await stack.enter_async_context(_deployed(folder, env))
        client = Client(bb, deployed.port)
        await client.send(WARM, at_once)
        waits = await client.send(singly, 1)
        processes = {**deployed.processes, MODEL: psutil.Process(model.pid)}
        figures = await _loaded(bb, client, processes, count, at_once)
        await check_tasks(bb, WARM + singly + count)
        figures |= await _of_time(bb, waits)
        sdk = await _called(model, count, at_once)
    await asyncio.to_thread(forget_queue, transport, QUEUE)
    return figures | {
        "sdk_cpu_us": sdk["cpu_us"],
        "calls_per_second": sdk["per_second"],
        "ours_of_cpu": round(1 - sdk["cpu_us"] / figures["cpu_us"], 2),
    }


def _settings(url: str, transport: str, model: AiMock) -> dict[str, str]:
    tasks, ai = free_ports()
    return {
        "BACKBURNER_STORE": url,
        "BACKBURNER_TRANSPORT": transport,
        "BACKBURNER_LOG_LEVEL": "error",
        "BACKBURNER_WEBHOOK_SECRET": "what all three of them know and nobody else",
        "BACKBURNER_TASKS_TOKENS": str(10**12),
        "BACKBURNER_AI": "openai",
        # The provider's limit is high enough never to delay a call of its lane.
        "BACKBURNER_AI_REQUESTS": "1000000",
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": model.url,
        "TASKS_SERVICE_BASE_URL": f"http://127.0.0.1:{tasks}",
        "AI_SERVICE_BASE_URL": f"http://127.0.0.1:{ai}",
    }


@asynccontextmanager
async def _deployed(folder: Path, env: dict[str, str]) -> AsyncIterator[Deployment]:
    """Run both services and a worker, as a deployment does."""
    ports = {
        name: env[f"{name.upper()}_SERVICE_BASE_URL"].rpartition(":")[2]
        for name in ("tasks", "ai")
    }
    commands = {
        name: ("serve", name, "--dev", "--no-worker", "--port", port)
        for name, port in ports.items()
    } | {"worker": ("worker", "--app", "ai")}
    async with running_processes(folder, env, commands) as found:
        yield Deployment(found, int(ports["tasks"]))


@asynccontextmanager
async def running_processes(
    folder: Path, env: dict[str, str], commands: Mapping[str, Sequence[str]]
) -> AsyncIterator[Mapping[str, psutil.Process]]:
    """Run several commands of Backburner, all ready before the block begins."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, words in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                running[name] = subprocess.Popen(  # noqa: ASYNC220 - before it is measured
                    [sys.executable, "-m", "backburner", *words],
                    env=os.environ | env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        for name, process in running.items():
            await asyncio.to_thread(_ready, process, folder / f"{name}.log")
        yield {name: psutil.Process(p.pid) for name, p in running.items()}
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            await asyncio.to_thread(process.wait)


def _ready(process: "subprocess.Popen[bytes]", log: Path) -> None:
    while "Backburner " not in log.read_text():
        if process.poll() is not None:
            raise NotTrueError(f"a process has ended: {log.read_text()[-300:]}")
        time.sleep(0.05)


def free_ports() -> tuple[int, int]:
    """Return two free ports: each service must know the other's before it starts."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        return one.getsockname()[1], other.getsockname()[1]


class Client:
    """Sends sentences, and polls the store for their tasks."""

    def __init__(self, bb: Backburner, port: int) -> None:
        self._store: Any = bb.engine.store
        self._port = port
        self._open: dict[str, asyncio.Future[float]] = {}

    async def send(self, count: int, at_once: int) -> list[float]:
        """Keep sentences in progress until all have tasks; return the times."""
        numbers, waits = iter(range(count)), list[float]()
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            looking = group.create_task(self._look(LOOK_SECONDS[at_once > 1]))
            sending = [
                group.create_task(self._send(user, numbers, waits))
                for user in range(at_once)
            ]
            await asyncio.wait(sending)
            looking.cancel()
        return waits

    async def _send(
        self, user: int, numbers: Iterator[int], waits: list[float]
    ) -> None:
        streams = await asyncio.open_connection("127.0.0.1", self._port)
        said = json.dumps({"naturalLanguage": SENTENCE})
        for _ in numbers:
            begun = time.perf_counter()
            accepted = await post(
                streams, "/api/v1/tasks", said, f"X-User-Id: u-{user}\r\n"
            )
            there = asyncio.get_running_loop().create_future()
            self._open[json.loads(accepted)["tasksServiceRequestId"]] = there
            waits.append(await there - begun)
        streams[1].close()

    async def _look(self, pause: float) -> None:
        while True:
            for request, state in await self._store.read(self._ended):
                if state != CREATED:
                    raise NotTrueError(f"a request has {state}")
                self._open.pop(request).set_result(time.perf_counter())
            await asyncio.sleep(pause)

    def _ended(self, connection: sa.Connection) -> Sequence[Any]:
        ids, c = list(self._open), requests.c
        if not ids:
            return ()
        query = sa.select(c.id, c.state).where(c.id.in_(ids), c.state != OPEN)
        return connection.execute(query).all()


async def _loaded(
    bb: Backburner,
    client: Client,
    processes: Mapping[str, psutil.Process],
    count: int,
    at_once: int,
) -> Figures:
    """Keep many in progress; return the rate, the times and each process's CPU time."""
    before = {name: cpu_of(process) for name, process in processes.items()}
    begun = time.perf_counter()
    waits = await client.send(count, at_once)
    wall = time.perf_counter() - begun
    await _until_over(bb)
    used = {
        name: (cpu_of(process) - before[name]) / count * 1e6
        for name, process in processes.items()
    }
    return {
        "per_second": round(count / wall, 1),
        **quantiles(waits),
        "cpu_us": round(sum(us for name, us in used.items() if name != MODEL), 1),
        **{f"{name}_cpu_us": round(us, 1) for name, us in used.items()},
    }


async def _until_over(bb: Backburner) -> None:
    """Wait for the end of all callbacks, whose jobs end after the task is stored."""
    while await bb.engine.store.depths():
        await asyncio.sleep(0.01)


def cpu_of(process: psutil.Process) -> float:
    """Return the CPU time of a process, in seconds."""
    used = process.cpu_times()
    return float(used.user + used.system)


async def check_tasks(bb: Backburner, count: int) -> None:
    """Check that every sentence has one task with its usage, and nothing is on hold."""
    await check(bb, Expected(2 * count, 2 * count, EVENTS * count))
    *counted, held, settled, used = await bb.transact(_counted)
    steps = count * len(TASK["subtasks"])
    if counted != [count, count, steps, count, count, count]:
        raise NotTrueError(f"{counted} were counted, of {count}")
    if held or not used or settled != used:
        raise NotTrueError(f"{held} held, {settled} settled, {used} used")


def _counted(tx: Transaction) -> Sequence[int]:
    return [int(n) for n in tx.connection.execute(sa.text(COUNTS)).one()]


async def _of_time(bb: Backburner, waits: Sequence[float]) -> Figures:
    """Return Backburner's share of the time, with one sentence after the other."""
    outputs = await bb.transact(
        lambda tx: tx.connection.execute(sa.text(ANSWERS)).scalars().all()
    )
    answers = map(json.loads, outputs[WARM : WARM + len(waits)])
    calls = [
        step["durationMs"]
        for answer in answers
        for step in answer["openaiMetadata"].values()
    ]
    whole = sum(waits) * 1000
    return {
        "singly_ms": round(whole / len(waits), 1),
        "call_ms": round(sum(calls) / len(waits), 1),
        "ours_of_time": round(1 - sum(calls) / whole, 2),
    }


async def _called(model: AiMock, count: int, at_once: int) -> dict[str, float]:
    """Make the same number of model calls as the worker, by the adapter alone."""
    asked = (await asyncio.to_thread(model.requests))[-1]["body"]
    messages = [Message(m["role"], m["content"]) for m in asked["messages"]]
    chat = Chat(messages, asked["model"], schema={})
    settings = Settings(ai=("openai",), openai_api_key=KEY, openai_base_url=model.url)
    [provider] = find_providers(settings, SystemClock())["chat"]

    async def caller(numbers: Iterator[int]) -> None:
        for _ in numbers:
            await provider.chat(chat)

    async def call(count: int) -> None:
        numbers = iter(range(count))
        await asyncio.gather(*(caller(numbers) for _ in range(at_once)))

    try:
        await call(WARM)
        with Meter() as meter:
            await call(count)
    finally:
        await provider.close()
    return meter.figures(count)
