"""Both services and their workers as processes, and who talks to them."""

import asyncio
import signal
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx2
import orjson

from backburner.testing.broker.acts import pause
from tests.apps.programs import launch

QUEUE = "ai-capability-jobs"
TASK = {"title": "Call mum", "priority": "high", "subtasks": [{"title": "Find number"}]}
USED = {"prompt_tokens": 40, "completion_tokens": 2, "total_tokens": 42}


@dataclass
class TasksClient:
    """A client of the Tasks service."""

    client: httpx2.AsyncClient

    async def create(self, sentence: Any = "buy milk tomorrow", **more: Any):
        """Ask for a task."""
        body = {"naturalLanguage": sentence}
        return await self.client.post("/api/v1/tasks", json=body, **more)

    async def ended(self, accepted: Any, **more: Any) -> dict[str, Any]:
        """Return what became of a request once something did."""
        place = f"/api/v1/requests/{accepted.json()['tasksServiceRequestId']}"
        async with asyncio.timeout(300):
            while True:
                told = (await self.client.get(place, **more)).json()
                if told["status"] in {"created", "failed"}:
                    return told
                await asyncio.sleep(0.1)  # noqa: TID251 - only the service knows

    async def made(self) -> list[dict[str, Any]]:
        """Return all tasks."""
        found = await self.client.get("/api/v1/tasks", params={"limit": 200})
        return found.json()["items"]


class Llm:
    """Answers every question alike, when it is told to."""

    def __init__(self):
        self.asked = asyncio.Condition()
        self.may_answer = asyncio.Event()
        self.calls = 0
        self.url = ""

    async def was_asked(self, times=1):
        """Wait until it was asked so often in all."""
        async with asyncio.timeout(60), self.asked:
            await self.asked.wait_for(lambda: self.calls >= times)

    async def reply(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split()[0])
        await reader.readexactly(length)
        async with self.asked:
            self.calls += 1
            self.asked.notify_all()
        await self.may_answer.wait()
        message = {"role": "assistant", "content": orjson.dumps(TASK).decode()}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = orjson.dumps(
            {
                "id": "x",
                "object": "chat.completion",
                "created": 1,
                "model": "gpt-fake",
                "choices": [choice],
                "usage": USED,
            }
        )
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        writer.write(body)
        with suppress(ConnectionError):  # whoever asked may have been stopped
            await writer.drain()
        writer.close()


class Processes:
    """What a deployment starts, and what each wrote."""

    def __init__(self, folder, settings, *, tasks, ai):
        self.folder = folder
        self.settings = settings
        self.tasks, self.ai = tasks, ai
        self.running = {}

    async def start(self, name, *arguments, **settings):
        """Start one and wait until it says that it is ready; return its exit code."""
        self.running[name] = await asyncio.to_thread(
            launch,
            self.folder / f"{name}.log",
            *arguments,
            cwd=self.folder,
            settings=self.settings | settings,
        )
        return await self.says(name, "Backburner ")

    async def start_tasks(self, name="tasks", **settings):
        port = str(self.tasks)
        return await self.start(
            name, "serve", "tasks", "--dev", "--port", port, **settings
        )

    async def start_ai(self, **settings):
        port = str(self.ai)
        return await self.start(
            "ai", "serve", "ai", "--dev", "--no-worker", "--port", port, **settings
        )

    async def start_worker(self, name="worker", **settings):
        return await self.start(name, "worker", "--dev", "--app", "ai", **settings)

    async def start_all(self, **settings):
        """Start both services and a worker; none of them has an exit code."""
        starts = (self.start_ai, self.start_tasks, self.start_worker)
        codes = await asyncio.gather(*(start(**settings) for start in starts))
        assert [None] * 3 == codes, [self.log(name) for name in self.running]

    async def says(self, name, text):
        """Wait until a process has written something; return its exit code."""
        async with asyncio.timeout(60):
            while text not in self.log(name):
                code = self.running[name].poll()
                if code is not None:
                    return code
                await pause()
        return None

    @asynccontextmanager
    async def tasks_client(self):
        """Talk to the Tasks service."""
        url = f"http://127.0.0.1:{self.tasks}"
        async with httpx2.AsyncClient(
            base_url=url, timeout=30, trust_env=False
        ) as client:
            yield TasksClient(client)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def tell(self, name, number=signal.SIGTERM):
        """Send a signal."""
        self.running[name].send_signal(number)

    async def exit_code(self, name):
        """Wait until a process is gone."""
        return await asyncio.to_thread(self.running.pop(name).wait, 60)

    async def stop(self, name):
        """Ask a process to end; return its exit code."""
        self.tell(name)
        return await self.exit_code(name)

    def kill(self):
        for process in self.running.values():
            process.kill()
            process.wait()


async def rows(url, query, *arguments):
    """Read from the services' database."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(query, *arguments)
    finally:
        await connection.close()


async def balance(url):
    """Return what is held and what is settled of all budgets."""
    [row] = await rows(url, "SELECT sum(held), sum(settled) FROM accounts")
    return int(row[0]), int(row[1])
