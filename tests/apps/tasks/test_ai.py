"""The AI service by itself: what is checked, in which order, and what is answered."""

import asyncio
import re

import pytest

from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner.domain.errors import StoreFull, StoreUnavailable
from backburner.engine.submit.submission import LOCAL as OWNER
from backburner.ports.store.flows import GroupFilter
from tests.apps.tasks.test_tasks import INJECTED

EVERY = GroupFilter(OWNER, None, None)
OUTSIDE = {"webhook_http": True, "webhook_allow": ("127.0.0.1",)}
HELD = {"tokensReserved": 5, "windowStartTimestamp": 7}


def later(services, **changes):
    body = {
        "naturalLanguage": "buy milk",
        "callbackUrl": f"{services.url}/api/v1/webhooks",
        "userId": "default/1",
        **changes,
    }
    return {name: value for name, value in body.items() if value is not ...}


async def ask(services, body, pattern="async", name="parse-task", **more):
    place = f"/api/v1/capabilities/{name}"
    return await services.client.post(
        place, params={"pattern": pattern}, json=body, **more
    )


async def flows(services):
    return await services.backburner.engine.flows.list(EVERY)


async def test_the_registry_is_listed_with_schemas(start):
    services = await start(works=False)
    [found] = (await services.client.get("/api/v1/capabilities")).json()["items"]

    assert ("parse-task", "ai-capability-jobs") == (found["name"], found["queue"])
    assert {"naturalLanguage", "config"} == found["inputSchema"]["properties"].keys()
    assert {"result", "openaiMetadata"} == found["outputSchema"]["properties"].keys()


@pytest.mark.parametrize("name", ["none", "ai.callback", "demo.echo"])
@pytest.mark.parametrize("pattern", ["sync", "async"])
async def test_what_is_no_capability_is_404_before_anything_else(start, name, pattern):
    services = await start(works=False)
    refused = await ask(services, {"no": INJECTED}, pattern, name)

    assert (404, "UNKNOWN_CAPABILITY") == (
        refused.status_code,
        refused.json()["code"],
    )


@pytest.mark.parametrize("pattern", ["sync", "async"])
@pytest.mark.parametrize(
    "changes",
    [
        {"naturalLanguage": ...},
        {"naturalLanguage": ""},
        {"naturalLanguage": 7},
        {"naturalLanguage": "x" * 20_000},
        {"config": {"timezone": "Mars/Olympus"}},
        {"config": 7},
        {"reply": {"callbackUrl": "http://127.0.0.1/", "userId": "u"}},
        {"more": 1},
        {"naturalLanguage": ..., "config": INJECTED},
    ],
    ids=str,
)
async def test_the_schema_comes_before_the_guard(start, pattern, changes):
    services = await start(works=False)
    refused = await ask(services, later(services, **changes), pattern)

    assert (400, "INVALID_INPUT") == (refused.status_code, refused.json()["code"])
    assert [] == await flows(services)


@pytest.mark.parametrize("pattern", ["sync", "async"])
async def test_an_injection_is_400_with_its_code(start, pattern):
    services = await start(works=False)
    refused = await ask(services, later(services, naturalLanguage=INJECTED), pattern)

    assert (400, "AI_PROMPT_INJECTION") == (
        refused.status_code,
        refused.json()["code"],
    )
    assert [] == await flows(services)


@pytest.mark.parametrize(
    "changes",
    [
        {"callbackUrl": ...},
        {"callbackUrl": "ftp://example.org/"},
        {"callbackUrl": "http://127.0.0.1:1/inside"},
        {"callbackUrl": 7},
        {"userId": ...},
        {"userId": ""},
        {"userId": 0},
        {"userId": -7},
        {"userId": 7.5},
        {"userId": True},
        {"userId": ["7"]},
        {"tokenReservation": 7},
        {"tokenReservation": {"tokensReserved": -1, "windowStartTimestamp": 0}},
        {"tokenReservation": {"tokensReserved": 1}},
    ],
    ids=str,
)
async def test_async_needs_to_know_whom_to_call_back(start, changes):
    services = await start(works=False)
    refused = await ask(services, later(services, **changes))
    good = await ask(services, later(services, tokenReservation=HELD))

    assert (400, "INVALID_INPUT") == (refused.status_code, refused.json()["code"])
    assert 202 == good.status_code, "and is taken where it does"


@pytest.mark.parametrize("user", [7, "7", "Jo Doe"])
async def test_a_callback_keeps_the_type_of_its_user(start, receiver, user):
    url, bodies = receiver
    services = await start(**OUTSIDE)
    accepted = await ask(services, later(services, callbackUrl=url, userId=user))
    async with asyncio.timeout(60):
        told = await bodies.get()

    assert (type(user), user) == (type(told["userId"]), told["userId"])
    assert ("success", accepted.json()) == (
        told["status"],
        {"aiServiceRequestId": told["aiServiceRequestId"]},
    )


async def test_a_failure_tells_what_its_calls_used(start, receiver):
    url, bodies = receiver
    services = await start(**OUTSIDE)
    for mishap in ("nonsense", "refuse"):
        sentence = f"buy milk [[mock: {mishap}]]"
        body = later(services, callbackUrl=url, naturalLanguage=sentence)
        assert 202 == (await ask(services, body)).status_code
    async with asyncio.timeout(60):
        told = [await bodies.get() for _ in range(2)]
    by_code = {body["error"]["type"]: body for body in told}
    [step] = by_code["AI_INVALID_JSON"]["openaiMetadata"].values()

    assert {"failure"} == {body["status"] for body in told}
    assert ("mock", True, True) == (
        step["model"],
        step["inputTokens"] > 0,
        step["outputTokens"] > 0,
    )


async def test_another_pattern_or_no_object_is_400(start):
    services = await start(works=False)
    answers = [
        await ask(services, later(services), "perhaps"),
        await ask(services, [], "sync"),
    ]

    assert [400] * 2 == [answer.status_code for answer in answers]


@pytest.mark.parametrize(
    ("mishap", "status"),
    [
        ("429", 503),
        ("429 retry-after=7", 503),
        ("500", 503),
        ("drop", 503),
        ("hang", 504),
        ("nonsense", 502),
        ("broken", 502),
        ("refuse", 502),
    ],
)
async def test_sync_says_what_became_of_the_model(start, mishap, status):
    services = await start(ai_seconds=0.2)
    sentence = f"buy milk [[mock: {mishap}]]"
    answer = await ask(services, {"naturalLanguage": sentence}, "sync")

    assert status == answer.status_code, answer.text
    assert (status == 503) == ("retry-after" in answer.headers)
    if "7" in mishap:
        assert "7" == answer.headers["retry-after"]


async def test_sync_is_held_for_and_paid_by_the_caller(start):
    services = await start(tasks_tokens=10_000)
    told = await ask(services, {"naturalLanguage": "buy milk"}, "sync")
    paid = await services.balance()
    await ask(services, {"naturalLanguage": "buy milk [[mock: 500]]"}, "sync")

    [step] = told.json()["openaiMetadata"].values()
    assert (0, step["inputTokens"] + step["outputTokens"]) == paid
    assert paid == await services.balance(), "a call without an answer costs nothing"


async def test_sync_is_in_the_usage(start):
    services = await start()
    told = await ask(services, {"naturalLanguage": "buy milk"}, "sync")
    [step] = told.json()["openaiMetadata"].values()
    usage = (await services.client.get("/v1/usage")).json()
    place = f"/v1/jobs/{told.json()['aiServiceRequestId']}"
    job = (await services.client.get(place)).json()

    assert (1, step["inputTokens"]) == (
        usage["total"]["calls"],
        usage["total"]["input_tokens"],
    )
    assert ("succeeded", "parse-task") == (job["state"], job["capability"])


async def test_sync_goes_by_the_lane_of_its_model(start):
    paced = Mock(SystemClock())
    paced.is_paced = True
    services = await start(
        provider=paced, ai_requests=1, lane_patience_seconds=0, works=True
    )
    first, second = [
        await ask(services, {"naturalLanguage": "buy milk"}, "sync") for _ in range(2)
    ]

    assert (200, 503) == (first.status_code, second.status_code), second.text
    assert int(second.headers["retry-after"]) > 0


async def test_sync_over_budget_is_429_and_asks_no_model(start):
    services = await start(works=False, tasks_tokens=100)
    refused = await ask(services, {"naturalLanguage": "buy milk"}, "sync")

    assert (429, "BUDGET_EXHAUSTED") == (refused.status_code, refused.json()["code"])
    assert int(refused.headers["retry-after"]) > 0
    assert '"budget";q=100;w=86400' == refused.headers["ratelimit-policy"]
    assert refused.headers["ratelimit"].startswith('"budget";r=100;t=')
    assert [] == await services.backburner.budgets.accounts()


async def test_an_answer_that_was_corrected_counts_both_calls(start):
    services = await start()
    sentence = "buy milk [[mock: nonsense-once]]"
    told = (await ask(services, {"naturalLanguage": sentence}, "sync")).json()

    assert ["parse", "parse-2"] == [*told["openaiMetadata"]]


async def test_a_repeat_under_its_request_id_is_one_flow(start):
    services = await start(works=False)
    named = {"X-Request-ID": "req_1"}
    body = later(services, tokenReservation=HELD)
    answers = [await ask(services, body, headers=named) for _ in range(3)]
    other = await ask(services, body, headers={"X-Request-ID": "req_2"})
    unnamed = [await ask(services, body) for _ in range(2)]

    ids = [a.json()["aiServiceRequestId"] for a in (*answers, other, *unnamed)]
    assert [1, 4] == [len(set(ids[:3])), len(set(ids))]
    assert {*ids} == {flow.id for flow in await flows(services)}


async def test_a_flow_has_two_jobs_on_the_queue_and_the_request_s_id(start):
    services = await start(works=False)
    named = {"X-Request-ID": "req_1"}
    await ask(services, later(services, tokenReservation=HELD), headers=named)
    [flow] = await flows(services)
    steps = await services.backburner.engine.flows.steps(flow)

    assert ["parse-task", "ai.callback"] == [step.job.capability for step in steps]
    assert {"ai-capability-jobs"} == {step.job.queue for step in steps}
    assert {"req_1"} == {flow.request_id, *(step.job.request_id for step in steps)}
    assert [3, 3] == [step.job.max_attempts for step in steps]
    assert [0, 0] == [step.job.tokens for step in steps], "its caller holds for it"


@pytest.mark.parametrize("fault", [StoreUnavailable("gone"), StoreFull("full")])
async def test_a_store_that_cannot_be_written_is_503(start, monkeypatch, fault):
    services = await start(works=False)

    async def refuse(_flows):
        raise fault

    with monkeypatch.context() as broken:
        broken.setattr(services.backburner.engine.store, "submit_flows", refuse)
        refused = await ask(services, later(services))
    good = await ask(services, later(services))

    assert [503, 202] == [refused.status_code, good.status_code]
    assert "retry-after" in refused.headers
    assert 1 == len(await flows(services)), "nothing was queued"


async def test_the_description_of_the_api_has_the_rooms_in_it(start):
    services = await start(works=False)
    answer = await services.client.get("/openapi.json")
    described = answer.json()
    named = re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', answer.text)

    assert {*named} <= described["components"]["schemas"].keys()
    assert {"/api/v1/tasks", "/api/v1/webhooks", "/api/v1/capabilities"} <= {
        *described["paths"]
    }


async def test_the_routes_need_a_key_and_its_scope(start):
    services = await start(keyed=True)
    reader = await services.key("ann", "jobs:read")
    writer = await services.key("ann", "jobs:write")
    body = {"naturalLanguage": "buy milk"}
    answers = [
        await ask(services, body, "sync"),
        await ask(services, body, "sync", headers=reader),
        await ask(services, body, "sync", headers=writer),
        await services.client.get("/api/v1/capabilities", headers=writer),
        await services.client.get("/api/v1/capabilities", headers=reader),
    ]

    assert [401, 403, 200, 403, 200] == [a.status_code for a in answers]
