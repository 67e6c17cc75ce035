"""What a hostile or clumsy user of either service sends, and what they get."""

import asyncio

import pytest
import sqlalchemy as sa
from pydantic import ValidationError

from backburner.engine.access.keys import Actor, NewKey
from backburner_apps.ai.parsing import Parsed
from tests.apps.tasks.conftest import PARSE
from tests.apps.tasks.test_tasks import BOTH, failure, success, tasks_of, waiting

JSON = {"Content-Type": "application/json"}
ODD = ["%00", "a%00b", "%ff", "%F0%9F%92%A9", "' OR 1=1--", "x" * 3000]


@BOTH
@pytest.mark.parametrize("odd", ODD)
async def test_ids_that_nobody_ever_drew_are_404(start, odd):
    services = await start(works=False)
    client = services.client
    task, request = f"/api/v1/tasks/{odd}", f"/api/v1/requests/{odd}"
    answers = [
        await client.get(task),
        await client.patch(task, json={"status": "done"}),
        await client.delete(task),
        await client.get(request),
        await client.get(f"/v1/jobs/{odd}"),
        await client.get(f"/v1/flows/{odd}"),
        await client.post(f"/api/v1/capabilities/{odd}", json={}),
    ]

    assert {404} == {answer.status_code for answer in answers}


@BOTH
async def test_filters_that_nothing_can_match_are_400_or_find_nothing(start):
    services = await start()
    await services.ended(await services.create())
    client, place = services.client, "/api/v1/tasks"
    wrong = ["status=%00", "limit=0", "limit=x", "status=x"]
    none = ["cursor=a", "category=%00", "category=%F0%9F%92%A9", "priority=urgent"]
    refused = [await client.get(f"{place}?{query}") for query in wrong]
    found = [await client.get(f"{place}?{query}") for query in none]

    assert {400} == {answer.status_code for answer in refused}
    assert {200} == {answer.status_code for answer in found}
    assert [[]] * len(none) == [answer.json()["items"] for answer in found]
    assert 200 == (await client.get(f"{place}?cursor=%00")).status_code


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"natural_language": "buy milk"}',
        b'{"naturalLanguage": "buy milk", "more": {}}',
        b'{"naturalLanguage": "\\u200b\\u2060"}',
        b'{"naturalLanguage": "\\u00a0\\u2003"}',
        b'{"naturalLanguage": "buy \\u0000 milk"}',
        b'{"naturalLanguage": "buy \\ud800 milk"}',
        b'{"naturalLanguage": "buy \xff milk"}',
        b'{"naturalLanguage": ' + b"[" * 9_999 + b"]" * 9_999 + b"}",
    ],
    ids=lambda body: str(body[:40]),
)
@pytest.mark.parametrize("place", ["/api/v1/tasks", PARSE])
async def test_an_invalid_request_is_400_and_holds_nothing(start, place, body):
    services = await start(works=False, tasks_tokens=10_000)
    refused = await services.client.post(place, content=body, headers=JSON)

    assert 400 == refused.status_code, refused.text
    assert "application/problem+json" == refused.headers["content-type"]
    assert [] == await services.backburner.budgets.accounts()


@pytest.mark.parametrize(
    "sentence",
    [
        "👩‍👩‍👧‍👦 call family tomorrow at 5pm 🎉",
        "\u202ebuy milk\u202c שלום",
        "z" + "\u0301" * 900,
        "buy milk\n\r\n\tand <b>bread</b> & {butter} %s",
        "🎉",
    ],
)
async def test_odd_letters_come_back_as_they_were_sent(start, sentence):
    services = await start()
    told = await services.ended(await services.create(sentence))

    assert ("created", sentence) == (told["status"], told["task"]["naturalLanguage"])
    assert sentence not in services.log.getvalue()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"dueDate": 5}, 400),
        ({"dueDate": "2026-01-01T00:00:00"}, 400),
        ({"dueDate": "2026-02-30T00:00:00Z"}, 400),
        ({"dueDate": "tomorrow"}, 400),
        ({"due_date": "2026-01-01T00:00:00Z"}, 400),
        ({"title": "x" * 501}, 400),
        ({"priority": "HIGH"}, 400),
        ({"subtasks": []}, 400),
        ({"naturalLanguage": "x"}, 400),
        ({"dueDate": "2026-01-01T00:00:00+02:00"}, 200),
        ({"dueDate": None, "category": None, "description": None}, 200),
    ],
    ids=str,
)
async def test_a_task_is_changed_by_its_names_or_not_at_all(start, change, status):
    services = await start()
    task = (await services.ended(await services.create("buy milk")))["task"]
    place = f"/api/v1/tasks/{task['id']}"
    answer = await services.client.patch(place, json=change)
    after = (await services.client.get(place)).json()

    assert status == answer.status_code, answer.text
    if status == 400:
        assert task == after


@pytest.mark.parametrize("user", ["   ", "a\nb", "\u200b", "x" * 401])
async def test_a_user_that_cannot_be_seen_is_malformed(start, user):
    services = await start(works=False)
    body = {
        "naturalLanguage": "buy milk",
        "callbackUrl": f"{services.url}/api/v1/webhooks",
        "userId": user,
    }
    place = f"{PARSE}?pattern=async"
    refused = await services.client.post(place, json=body)
    good = await services.client.post(place, json={**body, "userId": "default/Jo Doe"})

    assert [400, 202] == [refused.status_code, good.status_code]


@pytest.mark.parametrize(
    ("place", "allowed"),
    [
        ("/api/v1/tasks", "GET, HEAD, POST"),
        ("/api/v1/tasks/task_x", "DELETE, GET, HEAD, PATCH"),
        ("/api/v1/requests/req_x", "GET, HEAD"),
        ("/api/v1/webhooks", "POST"),
        ("/api/v1/capabilities", "GET, HEAD"),
        ("/api/v1/capabilities/parse-task", "POST"),
    ],
)
async def test_other_methods_are_405_and_say_which_are_not(start, place, allowed):
    services = await start(works=False)
    answers = [
        await services.client.request(method, place)
        for method in ("PUT", "OPTIONS", "TRACE")
    ]

    assert {(405, allowed)} == {(a.status_code, a.headers["allow"]) for a in answers}


async def test_large_bodies_are_413_wherever_they_go(start):
    services = await start(works=False, body_limit=20_000)
    body = b'{"naturalLanguage": "' + b"x" * 20_000 + b'"}'
    places = ["/api/v1/tasks", PARSE, f"{PARSE}?pattern=async"]
    signed = await services.call_back(body)
    unsigned = await services.call_back(body, without=["webhook-id"])
    answers = [
        await services.client.post(place, content=body, headers=JSON)
        for place in places
    ]

    assert [413] * 4 == [answer.status_code for answer in (*answers, signed)]
    assert 401 == unsigned.status_code, "what is not signed is not even read"


@BOTH
async def test_a_flood_is_answered_by_202_or_429_and_ends(start):
    services = await start(tasks_tokens=20_000)
    answers = await asyncio.gather(*(services.create(f"buy {n}") for n in range(60)))
    taken = [answer for answer in answers if answer.status_code == 202]
    ends = await asyncio.gather(*(services.ended(answer) for answer in taken))

    assert {202, 429} == {answer.status_code for answer in answers}
    assert {"created"} == {told["status"] for told in ends}
    assert len(taken) == len(await tasks_of(services, params={"limit": 200}))
    assert 0 == (await services.balance())[0], "nothing is left held"


async def test_nobody_but_the_service_can_have_a_callback_signed(start):
    services = await start()
    url = f"{services.url}/api/v1/webhooks"
    forged = {"callbackUrl": url, "userId": "default/2", "aiServiceRequestId": "x"}
    asked = {"naturalLanguage": "buy milk"}
    later = {"step": "capability", "otherwise": "continue"}
    steps = [
        {"name": "capability", "capability": "parse-task", "input": asked},
        {"name": "b", "capability": "ai.callback", "input": forged, "needs": [later]},
    ]
    job = {"capability": "ai.callback", "input": forged}
    post = services.client.post
    refused = [
        await post("/v1/flows", json={"steps": steps}),
        await post("/v1/jobs", json=job),
        await post("/v1/batches", json={"jobs": [job]}),
    ]
    listed = (await services.client.get("/v1/capabilities")).json()["items"]

    assert {"UNKNOWN_CAPABILITY"} == {answer.json()["code"] for answer in refused}
    assert "parse-task" in {found["name"] for found in listed}, "the other is there"
    assert "ai.callback" not in {found["name"] for found in listed}


async def test_a_tenant_with_a_slash_in_its_name_gets_its_task(start, serve_ai):
    ai_url, ai_key = await serve_ai()
    services = await start(keyed=True, ai_service_base_url=ai_url, api_key=ai_key)
    scopes = frozenset({"jobs:read", "jobs:write"})
    wanted, actor = NewKey("a key", scopes, user="ann/1"), Actor("tests", "a/b")
    _, text = await services.backburner.keys.create(wanted, actor)
    ann = {"Authorization": f"Bearer {text}"}
    told = await services.ended(await services.create(headers=ann), headers=ann)

    assert "created" == told["status"], told


async def test_a_failure_is_logged_by_its_code_and_without_its_words(start):
    services = await start(works=False)
    request_id, ai_id = await waiting(services)
    await services.call_back(failure(ai_id), request_id=request_id)
    [line] = [
        line for line in services.log.getvalue().splitlines() if "task not made" in line
    ]

    assert f'"request_id":"{request_id}"' in line.replace(": ", ":")
    assert "AI_UNAVAILABLE" in line
    assert "no answer" not in line


@BOTH
async def test_a_callback_with_what_no_database_holds_is_400(start):
    services = await start(works=False)
    request_id, ai_id = await waiting(services)
    odd = success(ai_id, result={"title": "buy\0milk"})
    refused = await services.call_back(odd, request_id=request_id)
    good = await services.call_back(success(ai_id), request_id=request_id)

    assert [400, 201] == [refused.status_code, good.status_code]


def test_what_no_database_holds_is_left_out_of_a_model_s_words():
    step = {"title": "\0 bread"}
    odd = {"title": "buy\0 milk", "category": "\0", "subtasks": [step]}
    found = Parsed.model_validate(odd)

    assert ("buy milk", "", "bread") == (
        found.title,
        found.category,
        found.subtasks[0].title,
    )
    with pytest.raises(ValidationError):
        Parsed.model_validate({"title": "\0"})


async def test_a_request_that_the_ai_service_knows_no_more_has_failed(start):
    services = await start(works=False)
    accepted = await services.create()
    place = accepted.headers["location"]
    before = (await services.client.get(place)).json()
    gone = sa.text("UPDATE tasks_requests SET ai_request_id = 'flow_gone'")
    await services.backburner.transact(lambda tx: tx.connection.execute(gone))
    after = (await services.client.get(place)).json()

    assert ("queued", "failed") == (before["status"], after["status"])
    assert "CALLBACK_FAILED" == after["error"]["type"]
