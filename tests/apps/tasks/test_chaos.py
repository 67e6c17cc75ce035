"""Both services over a provider that fails by lot: npm's aimock, which is not ours."""

import asyncio
import json

import pytest

from backburner.testing.broker.acts import pause

TASK = {"title": "Buy milk", "priority": "low", "subtasks": []}
WISHES = 20
MODES = {
    "drop": {"dropRate": 0.5},
    "malformed": {"malformedRate": 0.5},
    "disconnect": {"disconnectRate": 0.5},
    "always": {"dropRate": 1},
}


async def asking(start, aimock):
    return await start(
        tasks_tokens=1_000_000,
        openai_api_key="sk-nothing",
        openai_base_url=aimock.url,
        ai_requests=60_000,
        ai=("openai",),
    )


async def test_a_rate_limit_with_retry_after_delays_and_fails_nobody(start, aimock):
    aimock.answers(json.dumps(TASK))
    aimock.chaos(rateLimitRate=1)
    services = await asking(start, aimock)
    accepted = [await services.wish(f"buy milk {n}") for n in range(3)]
    async with asyncio.timeout(30):
        while not aimock.requests():
            await pause()
    aimock.chaos(rateLimitRate=0)
    ends = [await services.ended(wish) for wish in accepted]

    assert ["created"] * 3 == [told["status"] for told in ends]
    assert 0 == (await services.balance())[0]


@pytest.mark.parametrize("mode", MODES)
async def test_every_request_is_a_task_or_a_failure_with_its_tokens_free(
    start, aimock, mode
):
    aimock.answers(json.dumps(TASK))
    aimock.chaos(**MODES[mode])
    services = await asking(start, aimock)
    wishes = [services.wish(f"buy milk {n}") for n in range(WISHES)]
    ends = [await services.ended(wish) for wish in await asyncio.gather(*wishes)]
    made = await services.client.get("/api/v1/tasks", params={"limit": 200})
    held, settled = await services.balance()

    created = [told for told in ends if told["status"] == "created"]
    codes = {told["error"]["type"] for told in ends if told["status"] == "failed"}
    tasks = {task["id"] for task in made.json()["items"]}
    assert tasks == {told["task"]["id"] for told in created}, "each once, none lost"
    assert codes <= {"AI_UNAVAILABLE", "AI_BAD_ANSWER"}
    assert 0 == held, "nothing is held any more"
    assert (settled > 0) == bool(created), "and only tasks were paid for"
    assert (mode == "always") == (not created)
