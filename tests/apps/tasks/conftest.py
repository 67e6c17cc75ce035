"""Both services in one process or in several, over real databases."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import orjson
import pika
import pytest

from backburner.domain.webhooks.webhook import sign
from backburner.engine.submit.submission import LOCAL
from backburner.ports.store.flows import GroupFilter
from backburner_apps.ai import AiSettings
from backburner_apps.ai import app as ai_app
from backburner_apps.tasks import app as tasks_app
from backburner_apps.tasks.settings import TasksSettings
from tests.apps.process import Process, listen, served
from tests.apps.tasks.deployment import QUEUE, Llm, Processes, TasksClient
from tests.ports import held_port

SECRET = "a secret that the two services share"  # noqa: S105 - of the tests
TOPIC = "ai-callback"
PARSE = "/api/v1/capabilities/parse-task"
EVERY = GroupFilter(LOCAL, None, None)
CALLED_BACK = {"userId": "1", "naturalLanguage": "buy milk"}


@dataclass
class Services(Process, TasksClient):
    """A running process with both services, and a client of it."""

    async def call_back(self, body: Any, *, request_id: str = "r", **changes: Any):
        """Post a callback as the worker does; `changes` spoil it."""
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        secret = changes.get("secret") or self.backburner.callback_sender.secret(
            TOPIC, self.url
        )
        at = changes.get("at", self.backburner.engine.now() // 1000)
        headers = {
            "Content-Type": "application/json",
            "webhook-id": "msg",
            "webhook-timestamp": str(at),
            "webhook-signature": sign([secret], "msg", at, content),
            "X-Request-ID": request_id,
        }
        for name in changes.get("without", ()):
            del headers[name]
        sent = changes.get("sent", content)
        return await self.client.post("/api/v1/webhooks", content=sent, headers=headers)

    async def balance(self) -> tuple[int, int]:
        """Return what is held and what is settled of the one budget."""
        [state] = await self.backburner.budgets.accounts()
        return state.balance.held, state.balance.settled


def success(ai_id, *, tokens=7, **more):
    step = {"model": "m", "inputTokens": tokens, "outputTokens": 0, "durationMs": 1}
    return {
        "status": "success",
        "aiServiceRequestId": ai_id,
        **CALLED_BACK,
        "result": {
            "title": "Buy milk",
            "priority": "low",
            "subtasks": [{"title": "a"}],
        },
        "openaiMetadata": {"parse": step},
        **more,
    }


async def waiting(services):
    """Have a request wait for its callback; return its id and the AI service's."""
    accepted = await services.create()
    assert 202 == accepted.status_code, accepted.text
    [flow] = await services.backburner.engine.flows.list(EVERY)
    return accepted.json()["tasksServiceRequestId"], flow.id


@pytest.fixture
async def start(store_url):
    """Start processes over one database."""
    async with AsyncExitStack() as stack:

        def begin(**options: Any):
            return stack.enter_async_context(services(store_url, **options))

        yield begin


TASKS = {
    "tasks_service_base_url": "service_base_url",
    "ai_service_base_url": "ai_service_base_url",
    "tasks_tokens": "tokens",
    "tasks_hold_seconds": "hold_seconds",
    "tasks_keep_days": "keep_days",
}
"""What `services` takes, and the field of the Tasks service's settings."""


def services(store, **options):
    listening = listen()
    url = listening[1]
    ours = {"service_base_url": url, "ai_service_base_url": url}
    for name in [name for name in options if name in TASKS]:
        ours[TASKS[name]] = options.pop(name)
    return served(
        store,
        [ai_app, tasks_app],
        [
            TasksSettings(**ours),
            AiSettings(tasks_service_base_url=ours["service_base_url"]),
        ],
        kind=Services,
        listening=listening,
        webhook_secret=SECRET,
        **options,
    )


@pytest.fixture
async def answering():
    """Start servers that always answer the same; `None`: nobody is there."""
    async with AsyncExitStack() as stack:

        async def begin(answer):
            if answer is None:
                return f"http://127.0.0.1:{stack.enter_context(held_port())}"
            status, body = answer

            async def reply(reader, writer):
                await reader.readuntil(b"\r\n\r\n")
                head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n"
                writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(reply, "127.0.0.1", 0)
            await stack.enter_async_context(server)
            port = server.sockets[0].getsockname()[1]
            return f"http://127.0.0.1:{port}"

        yield begin


class Swallower:
    """Stands before a server; while it `swallows`, answers are lost on the way."""

    def __init__(self):
        self.target = self.url = ""
        self.swallows = True
        self.passed = 0

    async def pass_on(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        told = head.decode().lower().partition("content-length:")[2].split()
        body = await reader.readexactly(int(told[0]) if told else 0)
        host, port = self.target.removeprefix("http://").split(":")
        answers, asks = await asyncio.open_connection(host, int(port))
        asks.write(head.replace(b"keep-alive", b"close") + body)
        answer = await answers.read()
        asks.close()
        self.passed += 1
        if not self.swallows:
            writer.write(answer)
            await writer.drain()
        writer.close()


@pytest.fixture
async def swallower():
    found = Swallower()
    async with await asyncio.start_server(found.pass_on, "127.0.0.1", 0) as server:
        found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield found


@pytest.fixture
async def receiver():
    """A server that takes callbacks; `bodies` gets what each held."""
    bodies = asyncio.Queue()

    async def reply(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split()[0])
        bodies.put_nowait(orjson.loads(await reader.readexactly(length)))
        writer.write(
            b"HTTP/1.1 201 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/hook", bodies


@pytest.fixture
async def serve_ai(tmp_path):
    """Start an AI service of its own, over a store of its own, with a key to it."""
    async with AsyncExitStack() as stack:

        async def begin():
            other = await stack.enter_async_context(
                services(
                    f"sqlite:///{tmp_path}/ai.db",
                    keyed=True,
                    webhook_http=True,
                    webhook_allow=("127.0.0.1",),
                )
            )
            shown = await other.key(None, "jobs:read", "jobs:write", "users:act")
            return other.url, shown["Authorization"].removeprefix("Bearer ")

        yield begin


@pytest.fixture
async def llm():
    """A server that speaks as OpenAI does and answers when it is told to."""
    found = Llm()
    server = await asyncio.start_server(found.reply, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    yield found
    found.may_answer.set()
    server.close()


@pytest.fixture
def broker(rabbitmq_url):
    """The broker, without what earlier runs left on our queues."""

    def clear():
        with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
            channel = connection.channel()
            for queue in (QUEUE, f"{QUEUE}-dlq"):
                channel.queue_delete(queue)

    clear()
    yield rabbitmq_url
    clear()


@pytest.fixture
async def deployment(tmp_path, migrated_url, broker, llm):
    """Both services' addresses, and the processes that are to be there."""
    with held_port() as tasks, held_port() as ai:
        settings = {
            "BACKBURNER_STORE": migrated_url,
            "BACKBURNER_POLL_SECONDS": "0.3",
            "BACKBURNER_LOG_FORMAT": "json",
            "BACKBURNER_AI": "openai",
            "BACKBURNER_TASKS_TOKENS": "10000",
            "RABBITMQ_URL": broker,
            "OPENAI_API_KEY": "sk-nothing",
            "OPENAI_BASE_URL": llm.url,
            "TASKS_SERVICE_BASE_URL": f"http://127.0.0.1:{tasks}",
            "AI_SERVICE_BASE_URL": f"http://127.0.0.1:{ai}",
        }
        found = Processes(tmp_path, settings, tasks=tasks, ai=ai)
        yield found
        found.kill()
