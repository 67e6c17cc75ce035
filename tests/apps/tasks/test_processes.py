"""Three processes, PostgreSQL, RabbitMQ and a server that speaks as OpenAI does."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

import asyncpg
import httpx2
import orjson
import pika
import pytest

DROPPED = ("BACKBURNER_", "COVERAGE_", "OPENAI_", "RABBITMQ_")
QUEUE = "ai-capability-jobs"
SENTENCE = "call mum tomorrow"
TASK = {"title": "Call mum", "priority": "high", "subtasks": [{"title": "Find number"}]}
USED = {"prompt_tokens": 40, "completion_tokens": 2, "total_tokens": 42}


class Llm:
    """Answers every question alike, when it is told to."""

    def __init__(self):
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.calls = 0
        self.url = ""

    async def reply(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split()[0])
        await reader.readexactly(length)
        self.calls += 1
        self.asked.set()
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
        await writer.drain()
        writer.close()


@pytest.fixture
async def llm():
    found = Llm()
    server = await asyncio.start_server(found.reply, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    yield found
    found.may_answer.set()
    server.close()


class Processes:
    """What a deployment starts, and what each wrote."""

    def __init__(self, folder, settings):
        self.folder = folder
        self.settings = settings
        self.running = {}

    async def start(self, name, *arguments, **settings):
        """Start one and wait until it says that it is ready; return its exit code."""
        known = os.environ.items()  # noqa: TID251 - what our programs start in
        kept = {k: v for k, v in known if not k.startswith(DROPPED)}
        path = self.folder / f"{name}.log"
        with path.open("wb") as log:
            self.running[name] = await asyncio.to_thread(
                subprocess.Popen,
                [sys.executable, "-m", "backburner", *arguments],
                cwd=self.folder,
                env=kept | self.settings | settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(60):
            while "Backburner " not in self.log(name):
                code = self.running[name].poll()
                if code is not None:
                    return code
                await asyncio.to_thread(lambda: None)
        return None

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def stop(self, name):
        self.running[name].send_signal(signal.SIGTERM)
        return self.running.pop(name).wait(60)

    def kill(self):
        for process in self.running.values():
            process.kill()
            process.wait()


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
    tasks, ai = (_free_port() for _ in range(2))
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
    found = Processes(tmp_path, settings)
    found.tasks, found.ai = tasks, ai
    yield found
    found.kill()


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


async def test_a_sentence_goes_through_three_processes_and_comes_back_a_task(
    deployment, llm, migrated_url
):
    started = await asyncio.gather(
        deployment.start("ai", "serve", "ai", "--dev", "--port", str(deployment.ai)),
        deployment.start(
            "tasks", "serve", "tasks", "--dev", "--port", str(deployment.tasks)
        ),
        deployment.start("worker", "worker", "--dev"),
    )
    url = f"http://127.0.0.1:{deployment.tasks}"
    async with httpx2.AsyncClient(base_url=url, timeout=30, trust_env=False) as client:
        accepted = await client.post(
            "/api/v1/tasks", json={"naturalLanguage": SENTENCE}
        )
        request_id = accepted.json()["tasksServiceRequestId"]
        async with asyncio.timeout(30):
            await llm.asked.wait()
        during = await client.get(f"/api/v1/requests/{request_id}")
        held = await _balance(migrated_url)
        llm.may_answer.set()
        async with asyncio.timeout(30):
            while True:
                told = (await client.get(f"/api/v1/requests/{request_id}")).json()
                if told["status"] not in {"queued", "running"}:
                    break
        ai = await client.post(f"http://127.0.0.1:{deployment.ai}/api/v1/tasks")

    assert [None] * 3 == started, deployment.log("tasks")
    assert 202 == accepted.status_code
    assert "running" == during.json()["status"]
    assert (True, 0) == (held[0] > 0, held[1]), "reserved before"
    assert ("created", "Call mum") == (told["status"], told["task"]["title"])
    assert [{"title": "Find number"}] == told["task"]["subtasks"]
    assert (0, 42) == await _balance(migrated_url), "reconciled after"
    assert 1 == llm.calls
    assert 404 == ai.status_code, "the AI service has no tasks"
    for name in ("tasks", "ai", "worker"):
        lines = [line for line in deployment.log(name).splitlines() if "{" in line]
        named = [line for line in lines if f'"request_id": "{request_id}"' in line]
        assert named, f"{name} does not name the request"
        assert SENTENCE not in deployment.log(name), "no user's text in a log"
    assert 0 == deployment.stop("worker")


async def test_a_callback_that_finds_nobody_is_replayed_when_its_receiver_is_back(
    deployment, llm, migrated_url, broker
):
    serve_tasks = ("serve", "tasks", "--dev", "--port", str(deployment.tasks))
    await asyncio.gather(
        deployment.start("ai", "serve", "ai", "--dev", "--port", str(deployment.ai)),
        deployment.start("tasks", *serve_tasks, BACKBURNER_TASKS_HOLD_SECONDS="1"),
        deployment.start(
            "worker", "worker", "--dev", BACKBURNER_WEBHOOK_CONNECT_SECONDS="0.3"
        ),
    )
    tasks, ai = (
        f"http://127.0.0.1:{port}" for port in (deployment.tasks, deployment.ai)
    )
    async with httpx2.AsyncClient(timeout=30, trust_env=False) as client:
        accepted = await client.post(
            f"{tasks}/api/v1/tasks", json={"naturalLanguage": SENTENCE}
        )
        async with asyncio.timeout(30):
            await llm.asked.wait()
        stopped = await asyncio.to_thread(deployment.stop, "tasks")
        llm.may_answer.set()
        dead = {"state": "failed", "capability": "ai.callback"}
        async with asyncio.timeout(60):
            while not (found := await _items(client, f"{ai}/v1/jobs", dead)):
                pass
            while await asyncio.to_thread(_depth, broker, f"{QUEUE}-dlq") != 1:
                pass
            while (held := await _balance(migrated_url)) != (0, 0):
                pass
        restarted = await deployment.start("again", *serve_tasks)
        retried = await client.post(f"{ai}/v1/jobs/{found[0]['id']}/retry")
        place = tasks + accepted.headers["location"]
        async with asyncio.timeout(60):
            while (told := (await client.get(place)).json())["status"] != "created":
                pass
        made = await _items(client, f"{tasks}/api/v1/tasks", {})

    assert (0, None) == (stopped, restarted)
    assert 3 == found[0]["attempt"], "it was tried three times"
    assert (0, 0) == held, "the reservation freed itself"
    assert (202, [told["task"]]) == (retried.status_code, made), "it is there, once"
    assert 1 == llm.calls, "the model was not asked again"
    assert (0, 42) == await _balance(migrated_url), "what it used is booked"


async def _items(client, url, where):
    return (await client.get(url, params=where)).json()["items"]


def _depth(url, queue):
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        return channel.queue_declare(queue, passive=True).method.message_count


async def test_a_missing_setting_is_a_clear_line_and_no_start(deployment):
    no_secret = await deployment.start(
        "tasks", "serve", "tasks", "--port", "0", BACKBURNER_KEY_PEPPER="p" * 32
    )
    without = await deployment.start(
        "alone", "serve", "tasks", "--dev", "--port", "0", AI_SERVICE_BASE_URL=""
    )
    wrong = await deployment.start(
        "wrong", "serve", "ai", "--dev", "--port", "0", AI_SERVICE_BASE_URL="nowhere"
    )
    no_key = await deployment.start("no key", "worker", "--dev", OPENAI_API_KEY="")
    unknown = await deployment.start("other", "serve", "songs", "--dev")

    assert [2] * 5 == [no_secret, without, wrong, no_key, unknown]
    for name, line in (
        ("tasks", "BACKBURNER_WEBHOOK_SECRET is not set"),
        ("alone", "AI_SERVICE_BASE_URL is not set"),
        ("wrong", "AI_SERVICE_BASE_URL: "),
        ("no key", "OPENAI_API_KEY"),
        ("other", "no service is called 'songs'; there is: ai, tasks"),
    ):
        assert line in deployment.log(name)
        assert "Traceback" not in deployment.log(name)


async def _balance(url):
    connection = await asyncpg.connect(url)
    row = await connection.fetchrow("SELECT sum(held), sum(settled) FROM accounts")
    await connection.close()
    return int(row[0]), int(row[1])
