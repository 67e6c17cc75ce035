"""Three processes, PostgreSQL, RabbitMQ and a server that speaks as OpenAI does."""

import asyncio
import json

import httpx2
import pika
import pytest

from tests.apps.tasks.deployment import QUEUE, balance

SENTENCE = "call mum tomorrow"
WORKER_LINES = (
    "Starting capability worker",
    "Shutting down worker gracefully",
    "Worker shutdown complete",
)


@pytest.mark.executed
async def test_a_sentence_goes_through_three_processes_and_comes_back_a_task(
    deployment, llm, migrated_url
):
    await deployment.start_all()
    async with deployment.tasks_client() as tasks_client:
        accepted = await tasks_client.create(SENTENCE)
        request_id = accepted.json()["tasksServiceRequestId"]
        await llm.was_asked()
        during = await tasks_client.client.get(f"/api/v1/requests/{request_id}")
        held = await balance(migrated_url)
        llm.may_answer.set()
        told = await tasks_client.ended(accepted)
        ai = await tasks_client.client.post(
            f"http://127.0.0.1:{deployment.ai}/api/v1/tasks"
        )

    assert 202 == accepted.status_code
    assert "running" == during.json()["status"]
    assert (True, 0) == (held[0] > 0, held[1]), "reserved before"
    assert ("created", "Call mum") == (told["status"], told["task"]["title"])
    assert [{"title": "Find number"}] == told["task"]["subtasks"]
    assert (0, 42) == await balance(migrated_url), "reconciled after"
    assert 1 == llm.calls
    assert 404 == ai.status_code, "the AI service has no tasks"
    for name in ("tasks", "ai", "worker"):
        lines = [line for line in deployment.log(name).splitlines() if "{" in line]
        named = [line for line in lines if f'request_id": "{request_id}"' in line]
        assert named, f"{name} does not name the request"
        assert SENTENCE not in deployment.log(name), "no user's text in a log"
    assert 0 == await deployment.stop("worker")
    events = [
        json.loads(line)["event"]
        for line in deployment.log("worker").splitlines()
        if line.startswith("{")
    ]
    said = [event for event in events if event in WORKER_LINES]
    assert [*WORKER_LINES] == said


@pytest.mark.thorough
async def test_a_callback_that_finds_nobody_is_replayed_when_its_receiver_is_back(
    deployment, llm, migrated_url, broker
):
    await asyncio.gather(
        deployment.start_ai(),
        deployment.start_tasks(BACKBURNER_TASKS_HOLD_SECONDS="1"),
        deployment.start_worker(BACKBURNER_WEBHOOK_CONNECT_SECONDS="0.3"),
    )
    tasks, ai = (
        f"http://127.0.0.1:{port}" for port in (deployment.tasks, deployment.ai)
    )
    async with httpx2.AsyncClient(timeout=30, trust_env=False) as client:
        accepted = await client.post(
            f"{tasks}/api/v1/tasks", json={"naturalLanguage": SENTENCE}
        )
        await llm.was_asked()
        stopped = await deployment.stop("tasks")
        llm.may_answer.set()
        dead = {"state": "failed", "capability": "ai.callback"}
        async with asyncio.timeout(60):
            while not (found := await _items(client, f"{ai}/v1/jobs", dead)):
                pass
            while await asyncio.to_thread(_depth, broker, f"{QUEUE}-dlq") != 1:
                pass
            while (held := await balance(migrated_url)) != (0, 0):
                pass
        restarted = await deployment.start_tasks("again")
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
    assert (0, 42) == await balance(migrated_url), "what it used is booked"


async def _items(client, url, where):
    return (await client.get(url, params=where)).json()["items"]


def _depth(url, queue):
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        return channel.queue_declare(queue, passive=True).method.message_count


async def test_the_ai_service_runs_a_worker_unless_it_is_told_not_to(deployment, llm):
    llm.may_answer.set()
    alone = ("serve", "ai", "--dev", "--port", str(deployment.ai))
    await asyncio.gather(deployment.start("ai", *alone), deployment.start_tasks())
    async with deployment.tasks_client() as tasks_client:
        told = await tasks_client.ended(await tasks_client.create(SENTENCE))
    codes = [await deployment.stop(name) for name in ("ai", "tasks")]

    assert ("created", [0, 0]) == (told["status"], codes)
    for line in WORKER_LINES:
        assert line in deployment.log("ai")
        assert line not in deployment.log("tasks"), "which has no capabilities"


async def test_a_worker_without_its_broker_stops_the_start(deployment):
    code = await deployment.start(
        *("ai", "serve", "ai", "--dev", "--port", "0"),
        RABBITMQ_URL="amqp://guest:guest@127.0.0.1:1/",
    )

    assert 2 == code
    assert "Worker failed to start, AI service startup aborted" in deployment.log("ai")
    assert "BACKBURNER_TRANSPORT: no broker answers" in deployment.log("ai")


async def test_a_missing_setting_is_a_clear_line_and_no_start(deployment):
    no_secret = await deployment.start(
        "tasks", "serve", "tasks", "--port", "0", BACKBURNER_KEY_PEPPER="p" * 32
    )
    without = await deployment.start(
        "alone", "serve", "tasks", "--dev", "--port", "0", AI_SERVICE_BASE_URL=""
    )
    wrong = await deployment.start(
        "wrong", "serve", "tasks", "--dev", "--port", "0", AI_SERVICE_BASE_URL="nowhere"
    )
    no_key = await deployment.start(
        "no key", "worker", "--dev", "--app", "ai", OPENAI_API_KEY=""
    )
    unknown = await deployment.start("other", "serve", "songs", "--dev")

    assert [2] * 5 == [no_secret, without, wrong, no_key, unknown]
    for name, line in (
        ("tasks", "BACKBURNER_WEBHOOK_SECRET is not set"),
        ("alone", "AI_SERVICE_BASE_URL is not set"),
        ("wrong", "AI_SERVICE_BASE_URL: "),
        ("no key", "OPENAI_API_KEY"),
        ("other", "no application is named 'songs'; installed: ai, "),
    ):
        assert line in deployment.log(name)
        assert "Traceback" not in deployment.log(name)
