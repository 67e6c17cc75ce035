"""The exact contract with DeepSeek, by the journal of a fake server."""

import json

import pytest

from tests.apps.inbox.conftest import SUCCEEDED
from tests.apps.inbox.fake_bot import serving

TASK = {"title": "Buy milk", "deadline": "2026-11-20", "subtasks": []}
ANSWER = json.dumps({"tasks": [TASK]})
FORMS = [ANSWER, f"```json\n{ANSWER}\n```", f"Here you are:\n```\n{ANSWER}\n```"]


@pytest.fixture
def deepseek(aimock, monkeypatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-of-the-tests")
    monkeypatch.setenv("DEEPSEEK_BASE_URL", aimock.url)
    return aimock


async def test_the_request_has_exactly_these_fields(start, deepseek):
    labels = {"result": "success", "provider": "deepseek"}
    inbox = await start(ai=(), ai_text=("deepseek",))
    before = inbox.metric("ai_parse_total", **labels)
    timed = inbox.metric("ai_parse_duration_ms_count", provider="deepseek")
    for number, form in enumerate(FORMS):
        deepseek.answers(form, to=f"milk {number}")
        await inbox.say(f"Buy milk {number}")
    await inbox.rest()
    journal = deepseek.requests()
    bodies = [entry["body"] for entry in journal]

    assert ["Buy milk"] * 3 == [task.title for task in await inbox.tasks()]
    assert ["2026-11-20T23:59:00+00:00"] * 3 == [
        task.deadline for task in await inbox.tasks()
    ]
    for entry, body in zip(journal, bodies, strict=True):
        assert ("POST", "/v1/chat/completions") == (entry["method"], entry["path"])
        fields = {k: v for k, v in body.items() if not k.startswith("_")}
        assert {"model", "messages", "max_tokens", "temperature"} == fields.keys()
        assert ("deepseek-chat", 2000, 0.1) == (
            body["model"],
            body["max_tokens"],
            body["temperature"],
        )
        system, user = body["messages"]
        assert ["system", "user"] == [system["role"], user["role"]]
        for needed in ("Keep the language", "No Markdown", '"maxItems":5', "Example"):
            assert needed in system["content"]
    assert before + 3 == inbox.metric("ai_parse_total", **labels)
    assert timed + 3 == inbox.metric("ai_parse_duration_ms_count", provider="deepseek")
    lines = [json.loads(line) for line in inbox.log.getvalue().splitlines()]
    told = [line for line in lines if line["event"] == "DeepSeek request metadata"]
    assert 3 == len(told)
    assert ("debug", "deepseek", "deepseek-chat", 1) == (
        told[0]["level"],
        told[0]["provider"],
        told[0]["model"],
        told[0]["attempt"],
    )
    assert told[0]["promptLength"] > 500
    assert "milk" not in inbox.log.getvalue()


async def test_the_key_is_shown_as_a_bearer(start, monkeypatch):
    async def reply(_path, _body):
        message = {"role": "assistant", "content": ANSWER}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return 200, json.dumps({"model": "deepseek-chat", "choices": [choice]}).encode()

    heads = []
    async with serving(reply, heads) as url:
        monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-of-the-tests")
        monkeypatch.setenv("DEEPSEEK_BASE_URL", f"{url}/v1")
        inbox = await start(ai=(), ai_text=("deepseek",))
        await inbox.say("Buy milk")
        await inbox.rest()

    [head] = heads
    assert head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert "authorization: bearer sk-of-the-tests\r\n" in head.lower()


async def test_a_correction_shows_what_was_wrong_once(start, deepseek):
    inbox = await start(ai=(), ai_text=("deepseek",))
    deepseek.answers('{"tasks": []}')
    await inbox.say("Buy milk")
    await inbox.rest()
    first, second = (entry["body"] for entry in deepseek.requests())
    job = await inbox.job()

    assert SUCCEEDED is job.state
    assert [2, 4] == [len(first["messages"]), len(second["messages"])]
    assert "tasks" in second["messages"][-1]["content"]
    assert ["PARSE_FAILED"] == [task.status for task in await inbox.tasks()]
