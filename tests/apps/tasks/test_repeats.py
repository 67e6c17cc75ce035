"""A client that asks again, and an AI service whose answers are lost: one task."""

import asyncio

import pytest

from backburner.domain.jobs.job import Owner
from backburner.ports.store.maintenance import JobFilter
from backburner.web import Refusal
from backburner_apps.tasks.asking import AiService
from tests.apps.tasks.conftest import EVERY
from tests.apps.tasks.test_tasks import BOTH, tasks_of

KEY = {"Idempotency-Key": "once"}


async def flows_of(services):
    return await services.backburner.engine.flows.list(EVERY)


@BOTH
async def test_a_repeat_with_its_key_is_the_same_request(start):
    services = await start(works=False, tasks_tokens=10_000)
    first = await services.create(headers=KEY)
    again = await services.create(headers=KEY)
    at_once = await asyncio.gather(
        *(services.create(headers={"Idempotency-Key": "now"}) for _ in range(5))
    )
    other = await services.create("buy bread", headers=KEY)
    of_another_user = await services.create(headers={**KEY, "X-User-Id": "ann"})
    odd = await services.create(headers={"Idempotency-Key": "x" * 256})

    assert [202, 202] == [first.status_code, again.status_code]
    assert first.json() == again.json()
    assert (None, "true") == tuple(
        answer.headers.get("idempotency-replayed") for answer in (first, again)
    )
    assert 1 == len({answer.text for answer in at_once})
    assert (422, "IDEMPOTENCY_CONFLICT") == (other.status_code, other.json()["code"])
    assert of_another_user.json() != first.json()
    assert 400 == odd.status_code
    assert 2 == len(await flows_of(services)), "of the one user"


@pytest.mark.parametrize("is_keyed", [True, False])
async def test_an_answer_that_is_lost_makes_no_second_task(start, swallower, is_keyed):
    headers = KEY if is_keyed else {}
    services = await start(works=False, ai_service_base_url=swallower.url)
    swallower.target = services.url
    lost = await services.create(headers=headers)
    swallower.swallows = False
    again = await services.create(headers=headers)
    await services.backburner.start_worker()
    told = await services.ended(again)
    ends = await ended_flows(services, 1 if is_keyed else 2)

    assert [503, 202] == [lost.status_code, again.status_code]
    assert swallower.passed >= 2, "the AI service had taken the first"
    assert "created" == told["status"]
    assert [told["task"]] == await tasks_of(services)
    assert {"succeeded"} == {flow.state for flow in ends}, "all were called back"


async def ended_flows(services, count):
    async with asyncio.timeout(60):
        while True:
            found = await flows_of(services)
            if len(found) == count and all(flow.state != "running" for flow in found):
                return found
            await asyncio.sleep(0.05)  # noqa: TID251 - only the engine knows


async def test_a_refusal_frees_its_key(start, answering):
    away = await answering(None)
    services = await start(works=False, ai_service_base_url=away)
    refused = [await services.create(headers=KEY) for _ in range(2)]

    assert [503, 503] == [answer.status_code for answer in refused]
    assert all("retry-after" in answer.headers for answer in refused)


@BOTH
async def test_a_late_refusal_keeps_what_a_repeat_had_accepted(start, monkeypatch):
    services = await start(works=False, tasks_tokens=10_000)
    parse, began, refuse = AiService.parse, asyncio.Event(), asyncio.Event()

    async def slow(*_args):
        began.set()
        await refuse.wait()
        raise Refusal(503, "STORE_UNAVAILABLE", "the request cannot be stored")

    monkeypatch.setattr(AiService, "parse", slow)
    late = asyncio.create_task(services.create(headers=KEY))
    await began.wait()
    monkeypatch.setattr(AiService, "parse", parse)
    accepted = await services.create(headers=KEY)
    refuse.set()
    refused = await late
    held, _ = await services.balance()
    again = await services.create(headers=KEY)
    await services.backburner.start_worker()
    told = await services.ended(accepted)

    assert [503, 202, 202] == [a.status_code for a in (refused, accepted, again)]
    assert accepted.json() == again.json(), "the key still belongs to the request"
    assert held > 0
    assert "created" == told["status"]
    assert [told["task"]] == await tasks_of(services)


async def test_each_user_is_a_user_of_the_ai_service(start):
    services = await start(works=False)
    names = ["ann", "bob"]
    for name in names:
        accepted = await services.create(headers={"X-User-Id": name})
        assert 202 == accepted.status_code
    store = services.backburner.engine.store
    found = [
        await store.jobs(JobFilter(Owner("default", name)), before=None, limit=9)
        for name in names
    ]

    assert [2, 2] == [len(jobs) for jobs in found], "a share for each"
